"""Texts in pieces: under their headings, of a bounded size, with nothing lost."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.knowledge import headings
from agentcore.knowledge.headings import MAX_HEADING
from agentcore.knowledge.splitting import OVERLAP, SIZE, split

MANUAL = """Before all.

# Lamp

About lamps.

## Use

Switch it on.

```sh
# no heading
```

## Care ##

Dust it.

# Desk

Lift it."""


def test_pieces_stand_under_their_headings():
    assert split(MANUAL) == [
        ("", "Before all."),
        ("Lamp", "About lamps."),
        ("Lamp > Use", "Switch it on.\n\n```sh\n# no heading\n```"),
        ("Lamp > Care", "Dust it."),
        ("Desk", "Lift it."),
    ]


def test_a_heading_with_nothing_below_makes_no_piece():
    assert split("# One\n\n# Two\n\ntext") == [("Two", "text")]
    assert split("# One") == []
    assert split("  \n\n ") == []


def test_an_unclosed_fence_loses_nothing():
    assert split("# One\n```\n# not one\nrest") == [("One", "```\n# not one\nrest")]


def test_long_paragraphs_are_cut_at_sentences_and_overlap():
    text = " ".join(f"Sentence number {number} is here." for number in range(200))
    pieces = [piece.text for piece in split(text)]
    assert all(len(piece) <= SIZE for piece in pieces)
    assert all(piece.endswith("here.") for piece in pieces)
    for before, after in pairwise(pieces):
        repeated = after.split("\n\n")[0]
        assert 0 < len(repeated) <= OVERLAP
        assert before.endswith(repeated)


def test_a_heading_path_is_no_longer_than_its_column():
    assert len(split(f"# {'a' * 200}\n## {'b' * 200}\ntext")[0].heading) == MAX_HEADING


@pytest.mark.parametrize("text", ["x" * 10_000, "word " * 3_000, "\n".join(["line"] * 3_000)])
def test_what_has_no_good_place_to_cut_is_cut_all_the_same(text):
    pieces = split(text)
    assert all(0 < len(piece.text) <= SIZE for piece in pieces)


@given(st.text(alphabet=st.sampled_from("ab .!?\n\té🦊"), max_size=5000))
def test_no_word_is_lost_and_no_piece_is_too_long(text):
    pieces = split(text)
    assert all(piece.text.strip() and len(piece.text) <= SIZE for piece in pieces)
    words = {word for word in text.split() if len(word) <= SIZE - OVERLAP}
    assert words <= {word for piece in pieces for word in piece.text.split()}


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("# Lamp", (1, "Lamp")),
        ("###### \tDeep  ##  ", (6, "Deep")),
        ("# C#", (1, "C#")),
        ("# a # b ###", (1, "a # b")),
        ("####### seven", None),
        ("#none", None),
        (" # indented", None),
        ("#", None),
        ("#   ", None),
        ("## ##", None),
    ],
)
def test_a_heading_is_what_markdown_takes_for_one(line, heading):
    assert headings.find(line) == heading


@pytest.mark.parametrize("line", ["# a" + " " * 1_000_000 + "b", "# a" + " #" * 500_000 + " b", "#" * 1_000_000])
def test_a_long_line_takes_no_time(line):
    started = time.perf_counter()
    headings.find(line)
    split(f"# Top\n{line}\ntext")
    assert time.perf_counter() - started < 2


def test_many_headings_below_a_long_one_take_no_time():
    started = time.perf_counter()
    pieces = split(f"# {'long ' * 200_000}\n" + "## next\ntext\n" * 10_000)
    assert len(pieces) == 10_000
    assert time.perf_counter() - started < 5
