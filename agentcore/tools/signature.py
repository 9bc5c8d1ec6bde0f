"""Read a function's signature: the arguments a model may give, as a pydantic model and as JSON Schema."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.json_schema import GenerateJsonSchema

from agentcore import canonical
from agentcore.exceptions import ConfigurationError
from agentcore.tools import json_text, schema
from agentcore.tools.context import ToolContext

_CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_MUTABLE = (list, dict, set, bytearray)
_REFUSED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values",
    inspect.Parameter.VAR_KEYWORD: "takes any number of values",
}


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a tool's function takes. `parameters` is the JSON Schema of `arguments_model`."""

    arguments_model: type[BaseModel]
    parameters: dict[str, Any]
    is_method: bool
    context_parameter: str | None


def read(name: str, function: Callable[..., Any]) -> Signature:
    """Return the signature of the function behind the tool `name`.

    Raises ConfigurationError for a parameter without type hint, with one that has no JSON Schema, with a mutable
    default or one that does not fit, and for positional-only parameters, *args and **kwargs.
    """
    parameters = list(inspect.signature(function).parameters.values())
    is_method = bool(parameters) and _is_instance(function, parameters[0])
    parameters = parameters[is_method:]
    hints = _type_hints(name, function, parameters)
    contexts = [item.name for item in parameters if _is_context(hints.get(item.name))]
    if len(contexts) > 1:
        raise _mistake(name, f"{' and '.join(contexts)} are both typed ToolContext", "one such parameter")
    arguments = [item for item in parameters if item.name not in contexts]
    for item in arguments:
        _check_parameter(name, item, hints)
    model = _arguments_model(name, arguments, hints)
    return Signature(
        arguments_model=model,
        parameters=_json_schema(name, model),
        is_method=is_method,
        context_parameter=contexts[0] if contexts else None,
    )


def _is_instance(function: Callable[..., Any], first: inspect.Parameter) -> bool:
    """Say whether `first` is the `self` of a method: the def stands in a class body and gives it no hint."""
    where = function.__qualname__.rpartition(".")[0]
    in_class_body = bool(where) and not where.endswith("<locals>")
    return first.annotation is first.empty and (in_class_body or first.name == "self")


def _type_hints(name: str, function: Callable[..., Any], parameters: list[inspect.Parameter]) -> dict[str, Any]:
    # Without the hint of what is returned: its name often exists for the type checker only.
    hinted = {item.name: item.annotation for item in parameters if item.annotation is not item.empty}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(SimpleNamespace(__annotations__=hinted), globalns=names, include_extras=True)
    except Exception as error:
        raise _mistake(
            name, f"a type hint cannot be read ({error})", "names that exist where the module is imported"
        ) from error


def _is_context(hint: Any) -> bool:
    return hint is ToolContext or ToolContext in typing.get_args(hint)


def _check_parameter(name: str, item: inspect.Parameter, hints: dict[str, Any]) -> None:
    if item.kind in _REFUSED_KINDS:
        raise _mistake(name, f"the parameter {item} {_REFUSED_KINDS[item.kind]}", "named parameters")
    if item.name not in hints:
        raise _mistake(
            name, f"the parameter {item.name!r} has no type hint", "a type with a JSON Schema, or ToolContext"
        )
    if isinstance(item.default, _MUTABLE):
        raise _mistake(name, f"the default of {item.name!r} is mutable ({item.default!r})", "an immutable one")


def _arguments_model(name: str, arguments: list[inspect.Parameter], hints: dict[str, Any]) -> type[BaseModel]:
    # Fields have neutral names, parameters are their aliases: `json` or `_x` are fine for a parameter only.
    fields = {f"field_{index}": _field(item, hints[item.name]) for index, item in enumerate(arguments)}
    model = _make_model(name, fields)
    for item in arguments:
        if item.default is not item.empty:
            _check_default(name, item, hints[item.name])
    return model


def _field(item: inspect.Parameter, hint: Any) -> tuple[Any, Any]:
    given: dict[str, Any] = {"alias": item.name}
    if item.default is not item.empty:
        given["default"] = item.default
    description = _description(hint)
    if description is not None:
        given["description"] = description
    return (hint, Field(**given))


def _description(hint: Any) -> str | None:
    if typing.get_origin(hint) is not Annotated:
        return None
    return next((text for text in typing.get_args(hint)[1:] if isinstance(text, str)), None)


def _make_model(name: str, fields: dict[str, tuple[Any, Any]]) -> type[BaseModel]:
    try:
        # Any: pydantic's overloads want each field spelled out.
        definitions: dict[str, Any] = fields
        return create_model(f"{name}_arguments", __config__=_CONFIG, **definitions)
    except Exception as error:
        raise _no_schema(name, error) from error


def _check_default(name: str, item: inspect.Parameter, hint: Any) -> None:
    """Refuse a default that is not the same value once stored and read back."""
    model = _make_model(name, {"field_0": _field(item, hint)})
    try:
        default = model.model_construct(field_0=item.default)
        text = json_text.write(schema.stored_form(default))
        fits = model.model_validate_json(text, strict=True) == default
    except Exception as error:
        raise _unfit_default(name, item) from error
    if not fits:
        raise _unfit_default(name, item)


def _json_schema(name: str, model: type[BaseModel]) -> dict[str, Any]:
    try:
        found = model.model_json_schema(schema_generator=_SchemaWithoutTitles)
        found.pop("title", None)
        result: dict[str, Any] = canonical.normalise(canonical.clean(found))
        return result
    except Exception as error:
        raise _no_schema(name, error) from error


class _SchemaWithoutTitles(GenerateJsonSchema):
    """Leaves out the titles that only repeat each field's name: a model pays for them by the token."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _no_schema(name: str, error: Exception) -> ConfigurationError:
    reason = str(error).partition("\n")[0]
    return _mistake(name, f"its arguments have no JSON Schema ({reason})", "types that pydantic can describe")


def _unfit_default(name: str, item: inspect.Parameter) -> ConfigurationError:
    return _mistake(
        name, f"the default of {item.name!r} ({item.default!r}) does not fit its type", "a value of that type"
    )


def _mistake(name: str, what: str, allowed: str) -> ConfigurationError:
    return ConfigurationError(f"Tool {name!r}: {what}; allowed: {allowed}.")
