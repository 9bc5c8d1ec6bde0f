"""What hides in a text is made visible; what does not stays as it is."""

import pytest

from agentcore.approvals.visible import has_hidden, made_visible, pieces

MARKED = {
    "pay\u202eemca": "pay⟨U+202E⟩emca",
    "a\u2066b\u2069": "a⟨U+2066⟩b⟨U+2069⟩",
    "zero\u200bwidth": "zero⟨U+200B⟩width",
    "\ufeffstart": "⟨U+FEFF⟩start",
    "soft\u00adhyphen": "soft⟨U+00AD⟩hyphen",
    "no\u00a0break": "no⟨U+00A0⟩break",
    "bell\x07": "bell⟨U+0007⟩",
    "cr\rlf": "cr⟨U+000D⟩lf",
    "line\u2028end": "line⟨U+2028⟩end",
    "filler\u3164": "filler⟨U+3164⟩",
    "tag\U000e0041": "tag⟨U+E0041⟩",
    "a\u200db": "a⟨U+200D⟩b",
}


@pytest.mark.parametrize(("text", "shown"), MARKED.items(), ids=[f"{ord(max(t)):x}" for t in MARKED])
def test_a_hidden_character_is_marked(text, shown):
    assert made_visible(text) == shown
    assert has_hidden(text)


@pytest.mark.parametrize("text", ["", "plain text\nand\ttabs", "é 漢字 русский עברית", "👨\u200d👩\u200d👧 ❤\ufe0f 😀"])
def test_a_text_without_any_stays_as_it_is(text):
    assert made_visible(text) == text
    assert not has_hidden(text)


def test_the_pieces_say_which_are_marks():
    assert pieces("a\u202eb") == [("a", False), ("⟨U+202E⟩", True), ("b", False)]
