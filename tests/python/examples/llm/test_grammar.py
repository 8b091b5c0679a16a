"""Grammars: the texts that they allow, the tokens that a mask leaves, and answers that obey them."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from examples.llm.checkpoint import pack
from examples.llm.config import UnknownModel
from examples.llm.engine import Engine
from examples.llm.grammar import JSON, BadGrammar, byte_ranges, parse
from examples.llm.masks import WRONG, Automaton, Mask, Vocabulary
from examples.llm.model import Model
from examples.llm.sampling import Sampling
from examples.llm.tokenizer import Text
from tests.generators.drawing import DRAWS, tries
from tests.python.examples.llm.models import SMALL, random_checkpoint
from tests.python.examples.llm.test_engine import finish, prompt


def state_after(automaton: Automaton, text: bytes) -> int:
    state = automaton.start
    for byte in text:
        state = int(automaton.step(np.array([state]), np.array([byte]))[0])
    return state


def is_text(grammar: str, text: str) -> bool:
    automaton = Automaton(parse(grammar))
    return automaton.is_end(state_after(automaton, text.encode()))


@pytest.mark.parametrize(
    ("rules", "pattern", "texts"),
    [
        ('root ::= "a" | "bc"', "a|bc", ["a", "bc", "b", "abc", ""]),
        ('root ::= x* "."\nx ::= [a-c] | "(" x ")"', r"[a-c]*\.", [".", "abc.", "abc", "(a)"]),
        ("root ::= [^a-z\\n]+ # not these", "[^a-z\n]+", ["A", "a", "é😀", "\n", "~"]),
        ('root ::= "x"{2,3} ("-" "y"?){0,1}', "x{2,3}(-y?)?", ["xx", "xxx-", "xx-y", "x", "xxxx"]),
        ('root ::= "x"{2}', "x{2}", ["xx", "x", "xxx"]),
        ('root ::= "x"{2,} .', "x{2,}.", ["xxé", "xxxx", "xx"]),
        (r'root ::= [\x41\-\]] "\"\\\n\u00e9"', '[A\\-\\]]"\\\\\\n\u00e9', ['A"\\\né', '-"\\\né', 'B"\\\né']),
        ("root ::= [-+]? [0-9]+", "[-+]?[0-9]+", ["-1", "+22", "3", "--1"]),
        ("root ::= [à-ÿ-]", "[à-ÿ-]", ["è", "-", "a", "Ā"]),
    ],
)
def test_texts_of_a_grammar(rules: str, pattern: str, texts: list[str]) -> None:
    found = [is_text(rules, text) for text in texts]
    assert found == [re.fullmatch(pattern, text, re.DOTALL) is not None for text in texts]
    assert True in found and False in found


def test_rules_may_be_recursive() -> None:
    rules = 'root ::= "(" root ")" root | ""'
    assert [is_text(rules, text) for text in ("", "()", "(()())", "(()", ")(")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@tries(40)
@given(DRAWS)
def test_ranges_of_characters_are_their_utf_8(rng: random.Random) -> None:
    low, high = sorted(
        rng.choice((0x7F, 0x90, 0x7FF, 0x800, 0xFFF, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF)) for _ in "ab"
    )
    low, high = max(low - rng.randrange(9), 0), min(high + rng.randrange(9), 0x10FFFF)
    ranges = list(byte_ranges(low, high))
    edges = [c for edge in (low, high, 0x80, 0x800, 0x1000, 0x10000) for c in range(edge - 3, edge + 4)]
    for character in edges:
        if 0 <= character <= 0x10FFFF and not 0xD800 <= character < 0xE000:
            text = chr(character).encode()
            fits = [
                r
                for r in ranges
                if len(r) == len(text) and all(a <= b <= c for (a, c), b in zip(r, text, strict=True))
            ]
            assert len(fits) == (low <= character <= high), hex(character)


@tries(60)
@given(DRAWS)
def test_objects_of_json(rng: random.Random) -> None:
    def value(depth: int) -> object:
        kind = rng.randrange(4 if depth > 3 else 6)
        if kind == 4:
            return [value(depth + 1) for _ in range(rng.randrange(3))]
        if kind == 5:
            return {text(): value(depth + 1) for _ in range(rng.randrange(3))}
        return [rng.choice((True, False, None)), rng.uniform(-1e6, 1e6), rng.randrange(-99, 99), text()][kind]

    def text() -> str:
        return "".join(rng.choice('ab"\\\n\t é😀{}[],:') for _ in range(rng.randrange(5)))

    automaton = Automaton(parse(JSON))
    whole = json.dumps(
        {"a": value(0)}, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1))
    ).encode()
    assert automaton.is_end(state_after(automaton, whole))
    cut = rng.randrange(1, len(whole))
    assert (
        not automaton.is_end(state_after(automaton, whole[:cut]))
        and state_after(automaton, whole[:cut]) != WRONG
    )
    broken = bytearray(whole)
    broken[rng.randrange(len(broken))] = rng.choice(b'ab"\\{}[],: 1\n')
    if automaton.is_end(state_after(automaton, bytes(broken))):
        assert isinstance(json.loads(broken.decode()), dict)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("root ::= x", "rule `root` uses `x`, which is not a rule"),
        ('x ::= "a"', "expected a rule `root`, found none"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: rule `root` is there twice"),
        ('root ::= root "a" | "b"', "rule `root` begins with itself"),
        ('root ::= x "a"\nx ::= "" | y\ny ::= x "b"', "begins with itself"),
        ('root ::= ("a"*)*', r"rule `\( \)` begins with itself"),
        ('root ::= "a" root', "rule `root` never ends"),
        ("root ::= []", r"never ends"),
        ('root ::= "a', "line 1, column 10: found '\"'"),
        ('root ::= ("a"', r"line 1, column 10: expected \) after it"),
        ('root = "a"', "line 1, column 6: found '='"),
        ('"a" ::= "b"', "line 1, column 1: expected NAME ::="),
        ('root ::= "a"{3,2}', r"at most 256, found \{3,2\}"),
        ('root ::= "a"{999}', "at most 256"),
        ("root ::= [z-a]", "from low to high, found"),
        ("root ::= *", r"column 10: found '\*'"),
    ],
)
def test_texts_that_are_not_grammars(rules: str, says: str) -> None:
    with pytest.raises(BadGrammar, match=says):
        parse(rules)


def test_a_mask_leaves_the_tokens_that_the_grammar_allows() -> None:
    texts = [bytes([b]) for b in range(97, 107)] + [
        b"ab",
        b"abc",
        b"bca",
        b"",
        "é".encode(),
        b"\xc3",
        b"\xa9",
    ]
    mask = Mask.of('root ::= [a-c]{2,4} "é"?', Vocabulary(texts), [13])
    ended = re.compile("[a-c]{2,4}(é)?")

    def allowed(text: bytes) -> set[int]:
        state = state_after(mask.automaton, text)
        return set(np.flatnonzero(mask.allowed(state)).tolist())

    assert allowed(b"") == {0, 1, 2, 10, 11, 12}
    assert allowed(b"a") == {0, 1, 2, 10, 11, 12}
    assert allowed(b"ab") == {0, 1, 2, 10, 13, 14, 15}
    assert allowed(b"abca") == {13, 14, 15} and allowed(b"abca\xc3") == {16}
    assert ended.fullmatch("abcaé") and allowed("abcaé".encode()) == {13}
    assert mask.after(mask.automaton.start, 11) == state_after(mask.automaton, b"abc")
    with pytest.raises(UnknownModel, match="a token that ends an answer, found none"):
        Mask.of('root ::= "a"', Vocabulary(texts), [])


TEXTS = [chr(32 + i).encode() for i in range(95)] + [b'":', b'{"', b"12", b""]
CONFIG = replace(SMALL, end=(98,))


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(pack(random_checkpoint(CONFIG)), pages=8)


def text_of(tokens: list[int]) -> str:
    return b"".join(TEXTS[token] for token in tokens).decode()


PAIRS = 'root ::= "{" pair ("," pair){2,6} "}"\npair ::= "\\"" [a-z]{1,4} "\\":" [0-9]{1,3}'
SHAPE = re.compile(r'\{"[a-z]{1,4}":\d{1,3}(,"[a-z]{1,4}":\d{1,3}){2,6}\}')


@pytest.mark.parametrize("drafts", [0, 5])
def test_answers_obey_their_grammars(model: Model, drafts: int) -> None:
    masks = [
        Mask.of(rules, Vocabulary(TEXTS), CONFIG.end) for rules in (PAIRS, 'root ::= ("ab" | "cd"){5,20}')
    ]
    engine = Engine(model, 40, drafts=drafts)
    free = engine.add(prompt(30), 30, ignores_end=True)
    pairs = [
        engine.add(prompt(20, seed), 90, sampling=Sampling(2.0, seed=seed), mask=masks[0])
        for seed in range(4)
    ]
    words = engine.add(prompt(70, 9), 90, mask=masks[1])
    finish(engine)
    for request in pairs:
        assert SHAPE.fullmatch(text_of(request.new)), text_of(request.new)
    assert re.fullmatch("(ab|cd){5,20}", text_of(words.new))
    assert free.new == list(Engine(model).generate(prompt(30), 30, ignores_end=True))
    again = list(Engine(model).generate(prompt(20, 2), 90, sampling=Sampling(2.0, seed=2), mask=masks[0]))
    assert again == pairs[2].new
    with pytest.raises(UnknownModel, match="`ignores_end` to be off"):
        engine.add(prompt(3), 3, ignores_end=True, mask=masks[0])


def test_a_grammar_without_tokens_ends_the_request_by_name(model: Model) -> None:
    mask = Mask.of('root ::= "aé"', Vocabulary(TEXTS), CONFIG.end)
    with pytest.raises(UnknownModel, match="for which the model has no token"):
        list(Engine(model).generate(prompt(5), 9, mask=mask))


def test_bytes_of_tokens() -> None:
    def fields(vocab: dict[str, int], decoder: object) -> str:
        added = [{"id": 3, "content": "<s>", "special": True}, {"id": 4, "content": "é", "special": False}]
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return json.dumps({
            "version": "1.0", "added_tokens": [token | flags for token in added], "decoder": decoder,
            "model": {"type": "BPE", "vocab": vocab, "merges": []},
        })  # fmt: skip

    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    found = Text(fields({"a": 0, "Ġb": 1, "Ã": 2}, byte_level)).bytes_of_tokens(6)
    assert found == [b"a", b" b", b"\xc3", b"", "é".encode(), b""]
    pieces = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]}  # fmt: skip
    found = Text(fields({"a": 0, "▁b": 1, "<0xC3>": 2}, pieces)).bytes_of_tokens(5)
    assert found == [b"a", b" b", b"\xc3", b"", "é".encode()]
