"""The rules: what to say or call next, given the conversation and the tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcore.messages import Message, ToolSpec
from agentcore.providers.demo import conversation as conversations
from agentcore.providers.demo import filling, intents, phrasing, words
from agentcore.providers.demo.conversation import Conversation, Record
from agentcore.providers.demo.filling import Filled
from agentcore.providers.demo.intents import Toolbox
from agentcore.providers.demo.schema import read_slots

# Words of a user whom something went wrong for, and of the tools that can make it good.
_TROUBLE = frozenset(
    words.meaning(word) for word in "broken damaged defective faulty wrong missing late unhappy cracked".split()
)
_REMEDIES = frozenset(words.meaning(word) for word in ("refund", "replace", "return"))
_AGAIN = frozenset({"again", "refresh", "latest"})
MIN_SHARED_WORDS = 2


@dataclass(frozen=True, kw_only=True)
class Say:
    """Answer the user with this text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Call:
    """Call this tool; `number` is its place among the conversation's calls."""

    tool: str
    arguments: Mapping[str, Any]
    number: int


def decide(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Say | Call:
    """Return what a sensible agent does next."""
    return _Rules(conversations.read(messages), Toolbox(tools=tools)).decide()


class _Rules:
    def __init__(self, conversation: Conversation, toolbox: Toolbox) -> None:
        self.conversation = conversation
        self.toolbox = toolbox

    def decide(self) -> Say | Call:
        failed = next((record for record in reversed(self.conversation.made_now) if not record.is_done), None)
        if failed is not None:
            return self._admit(failed)
        if self.conversation.wish.answers and (small_talk := self._converse()):
            return small_talk
        goal = self._goal()
        if goal is None and self.conversation.made_now:
            return Say(text=self._report(self.conversation.made_now[-1], question=self.conversation.wish.texts[0]))
        if goal is None:
            return self._converse() or self._remember() or self._cite() or self._search() or self._give_up()
        return self._look_up(goal) if intents.is_reading(goal) else self._act(goal)

    def _goal(self) -> ToolSpec | None:
        return intents.choose(self.conversation.wish, self.toolbox) or self._reader_of_bare_id()

    def _reader_of_bare_id(self) -> ToolSpec | None:
        """Return the tool that looks up what a message names by nothing but an id."""
        text = self.conversation.wish.texts[0]
        if len(words.meanings(text)) > 1:
            return None
        for tool in self._readers():
            if intents.id_slots(tool):
                values = filling.fill(tool, self.conversation).arguments.values()
                if any(str(value) in text for value in values):
                    return tool
        return None

    def _act(self, goal: ToolSpec) -> Say | Call:
        filled = filling.fill(goal, self.conversation)
        done = self._find_done(goal, filled)
        if done is not None:
            again = not done.is_of_this_turn
            return Say(text=phrasing.report_act(goal.name, done.arguments, done.outcome.data, again=again))
        doubtful = self._find_doubtful(goal, filled)
        if doubtful is not None:
            return self._admit(doubtful)
        return self._look_before(goal, filled) or self._ask_or_call(goal, filled)

    def _look_before(self, goal: ToolSpec, filled: Filled) -> Say | Call | None:
        """Look up what an act is about before doing it, and leave it when it turns out to be done already."""
        reader = self._find_reader(filled)
        if reader is None:
            return None
        known = self._find_known(reader, filled.ids)
        if known is None:
            return self._call(reader, filling.fill(reader, self.conversation))
        data = known.outcome.data
        if not data or (isinstance(data, str) and filled.missing):
            # Nothing, or words instead of a record: most likely they say what is wrong.
            return Say(text=phrasing.report_look_up(known.tool, known.arguments, data, question=""))
        status = str(data.get("status", "")) if isinstance(data, Mapping) else ""
        if words.meaning(status) in self.toolbox.marks(goal):
            text = phrasing.report_look_up(known.tool, known.arguments, data, question="status")
            return Say(text=f"{text} So there is nothing left to do.")
        return None

    def _find_reader(self, filled: Filled) -> ToolSpec | None:
        """Return a looking-up tool that needs nothing but ids which the act has."""
        for tool in self._readers():
            needed = {slot.name for slot in intents.id_slots(tool)}
            if needed and needed <= set(filled.ids) and not filling.fill(tool, self.conversation).missing:
                return tool
        return None

    def _readers(self) -> list[ToolSpec]:
        return [tool for tool in self.toolbox.tools if intents.is_reading(tool)]

    def _look_up(self, goal: ToolSpec) -> Say | Call:
        filled = filling.fill(goal, self.conversation)
        known = None if filled.missing else self._find_known(goal, filled.arguments)
        if known is None:
            return self._ask_or_call(goal, filled)
        question = self.conversation.wish.texts[0]
        if not known.is_of_this_turn and _AGAIN & set(question.lower().split()):
            return self._call(goal, filled)
        report = phrasing.report_look_up(goal.name, known.arguments, known.outcome.data, question=question)
        return Say(text=report + self._offer_remedy(filled))

    def _offer_remedy(self, filled: Filled) -> str:
        if not _TROUBLE & set(words.meanings(self.conversation.wish.texts[0])):
            return ""
        for tool in self.toolbox.tools:
            shares_id = {slot.name for slot in intents.id_slots(tool)} & set(filled.ids)
            if shares_id and _REMEDIES & self.toolbox.marks(tool):
                return f" {phrasing.offer(tool)}"
        return ""

    def _ask_or_call(self, tool: ToolSpec, filled: Filled) -> Say | Call:
        if filled.missing:
            return Say(text=phrasing.ask_for(tool, self._labels_to_ask(filled)))
        return self._call(tool, filled)

    def _labels_to_ask(self, filled: Filled) -> list[str]:
        """Return what to ask the user for: the ids alone, when looking those up may give the rest."""
        looked_up_by = {slot.name for tool in self._readers() for slot in intents.id_slots(tool)}
        ids = [slot for slot in filled.missing if slot.name in looked_up_by]
        return [slot.label for slot in ids or filled.missing]

    def _call(self, tool: ToolSpec, filled: Filled) -> Call:
        return Call(tool=tool.name, arguments=filled.arguments, number=self.conversation.calls_made + 1)

    def _admit(self, record: Record) -> Say:
        """Say that a call was declined or failed. It is not made again unless the user asks again."""
        tool = self.toolbox.find(record.tool)
        is_reading = tool is not None and intents.is_reading(tool)
        text = phrasing.report_failure(record.tool, record.arguments, record.outcome, is_reading=is_reading)
        return Say(text=" ".join([text, *self._ways_on(record, tool if is_reading else None)]))

    def _ways_on(self, failed: Record, reader: ToolSpec | None) -> list[str]:
        """Return what to propose after a failure: the right id for a look-up, a person for an act."""
        if reader is not None:
            labels = [slot.label for slot in intents.id_slots(reader)]
            return [phrasing.ask_again(labels)] if labels and failed.outcome.is_not_found else []
        person = words.meaning("ticket")
        helpers = [tool for tool in self.toolbox.tools if person in self.toolbox.marks(tool)]
        return [phrasing.offer(tool) for tool in helpers[:1] if tool.name != failed.tool]

    def _find_done(self, goal: ToolSpec, filled: Filled) -> Record | None:
        """Return the record of this very act: made since the user spoke, or earlier with the same arguments."""
        for record in self.conversation.known:
            if record.tool == goal.name and (record.is_of_this_turn or _is_same(goal, record, filled.arguments)):
                return record
        return None

    def _find_doubtful(self, goal: ToolSpec, filled: Filled) -> Record | None:
        """Return the record of this very act when nobody knows whether it happened: it is not tried again."""
        for record in reversed(self.conversation.records):
            if record.tool == goal.name and _is_same(goal, record, filled.arguments):
                return record if record.outcome.kind == "unknown" else None
        return None

    def _find_known(self, tool: ToolSpec, values: Mapping[str, Any]) -> Record | None:
        """Return the newest result of a looking-up tool for these values."""
        for record in self.conversation.known:
            if record.tool == tool.name and _is_same(tool, record, values):
                return record
        return None

    def _converse(self) -> Say | None:
        text = self.conversation.wish.texts[0]
        if words.is_greeting(text):
            return Say(text=phrasing.greet(self.toolbox.tools))
        if words.is_refusal(text):
            return Say(text=phrasing.accept_refusal())
        return Say(text=phrasing.thank()) if words.is_thanks(text) else None

    def _remember(self) -> Say | None:
        """Answer from an earlier call's result, or from what the user or the system said."""
        text = self.conversation.wish.texts[0]
        asked = set(words.meanings(text))
        for record in self.conversation.known:
            if asked & _topics(record) and (words.is_question(text) or text.rstrip().endswith("?")):
                return Say(text=self._report(record, question=text))
        told = [*self.conversation.knowledge, *self.conversation.earlier]
        parts = [part for block in told for part in words.sentences(block) if not _is_instruction(part)]
        best = max(parts, key=lambda part: len(asked & set(words.meanings(part))), default="")
        enough = min(MIN_SHARED_WORDS, len(asked))
        is_known = bool(asked) and len(asked & set(words.meanings(best))) >= enough
        return Say(text=phrasing.recall(best)) if is_known else None

    def _cite(self) -> Say | None:
        """Answer by the sentence of the knowledge base that shares most with the question, and say where it stands."""
        asked = set(words.meanings(self.conversation.wish.texts[0]))
        found = [(part, one) for one in self.conversation.passages for part in words.sentences(one.text)]
        best = max(found, key=lambda item: len(asked & set(words.meanings(item[0]))), default=None)
        if best is None:
            return None
        part, passage = best
        shared = len(asked & set(words.meanings(part)))
        is_known = shared >= MIN_SHARED_WORDS and shared * 2 >= len(asked)
        return Say(text=phrasing.cite(part, title=passage.title, source=passage.source)) if is_known else None

    def _report(self, record: Record, *, question: str) -> str:
        tool = self.toolbox.find(record.tool)
        if tool is None or intents.is_reading(tool):
            return phrasing.report_look_up(record.tool, record.arguments, record.outcome.data, question=question)
        return phrasing.report_act(record.tool, record.arguments, record.outcome.data, again=False)

    def _search(self) -> Say | Call | None:
        """Ask a tool that takes any question, as a search does."""
        if not words.is_question(self.conversation.wish.texts[0]):
            return None
        for tool in self._readers():
            required = [slot for slot in read_slots(tool) if slot.required]
            if len(required) == 1 and required[0].kind == "text":
                return self._look_up(tool)
        return None

    def _give_up(self) -> Say:
        """Say what is needed for the act that a question is about, else what can be done at all."""
        text = self.conversation.wish.texts[0]
        goal = intents.find_act(text, self.toolbox, also_asked=True)
        if goal is None:
            return Say(text=phrasing.not_understood(text, self.toolbox.tools))
        filled = filling.fill(goal, self.conversation)
        return Say(text=phrasing.ask_for(goal, self._labels_to_ask(filled)) if filled.missing else phrasing.offer(goal))


def _topics(record: Record) -> set[str]:
    """Return the meanings that a call and its result are about."""
    data = record.outcome.data if isinstance(record.outcome.data, Mapping) else {}
    names = [record.tool, *data]
    found = {words.meaning(word) for name in names for word in words.split_name(name)}
    return found - {words.READING, words.MAKING}


def _is_same(tool: ToolSpec, record: Record, values: Mapping[str, Any]) -> bool:
    """Say whether a record is a call of the tool with these values, as far as the tool requires them."""
    required = [slot.name for slot in read_slots(tool) if slot.required]
    if not required:
        return record.is_of_this_turn
    return all(name in values and str(record.asked.get(name)) == str(values[name]) for name in required)


def _is_instruction(sentence: str) -> bool:
    return sentence.lower().startswith(("you are", "you must", "never", "always", "do not")) or (
        words.is_question(sentence)
    )
