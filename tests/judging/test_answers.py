"""What an answer of the board says: openings, verdicts, URLs, words, and distances."""

from __future__ import annotations

import json
import shutil
import unicodedata
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drift.config import sha256_hex
from drift.errors import ConfigurationError
from drift.judging.answers import BoardRules, Distance, Scorer, load_board_rules

CONFIG = Path(__file__).parents[2] / "config"
RULES = load_board_rules(CONFIG / "board.toml")
SCORER = Scorer(RULES)
LANGUAGES = ("en", "zh")


def changed(part: str, **values: Any) -> BoardRules:
    """Return the rules with other values in one part."""
    section = getattr(RULES, part).model_copy(update=values)
    return RULES.model_copy(update={part: section})


# The rules


def test_a_wrong_rule_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    shutil.copy(CONFIG / "board.toml", path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("near = 0.2", "near = 0.95"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"likeness: .*near = 0\.95"):
        load_board_rules(path)
    path.write_text(text.replace("answer_tokens = 128", "answer_tokens = 0"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"asking\.answer_tokens"):
        load_board_rules(path)


def test_the_identity_moves_with_what_can_move_a_score_and_with_nothing_else() -> None:
    def identity(rules: BoardRules) -> str:
        return Scorer(rules).identity["rules"]

    same = [
        changed("asking", answer_tokens=64),
        changed("encoder", tokens=128),
        changed("citations", enabled=False),
    ]
    moved = [
        RULES.model_copy(update={"version": "next"}),
        changed("openings", en=RULES.openings.zh),
        changed("verdict", marks="*"),
        changed("words", en="the"),
        changed("likeness", near=Decimal("0.15")),
    ]
    assert {identity(rules) for rules in same} == {identity(RULES)}
    assert len({identity(rules) for rules in (RULES, *moved)}) == len(moved) + 1


# Openings


def listed(language: str) -> list[str]:
    """Return all that can open an answer: each subject with each act, and what stands alone."""
    rules, space = getattr(RULES.openings, language), {"en": " ", "zh": ""}[language]
    pairs = [f"{subject}{space}{act}" for subject in rules.subjects for act in rules.acts]
    return [phrase.removesuffix(".") for phrase in (*pairs, *rules.alone)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_listed_phrase_is_written_as_it_is_read_and_opens_an_answer(language: str) -> None:
    for phrase in listed(language):
        # Of two acts of which one begins the other, either is found.
        found = SCORER.opening(f"**{phrase.upper()}** ...", language)
        assert found and phrase.startswith(found)
        assert SCORER.opening(phrase, language) == found


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_lead_leads_to_a_decline_and_alone_is_none(language: str) -> None:
    rules = getattr(RULES.openings, language)
    declines = {"en": "I can't help with that.", "zh": "我无法回答。"}[language]
    expected = SCORER.opening(declines, language)
    for lead in rules.leads:
        assert SCORER.opening(lead, language) is None
        for between in (" ", ". ", "! ", " - ", "，", "。\n"):
            assert SCORER.opening(f"{lead}{between}{declines}", language) == expected


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_phrase_is_listed_twice_and_no_lead_is_made_of_others(language: str) -> None:
    rules = getattr(RULES.openings, language)
    for phrases in (rules.leads, rules.subjects, rules.acts, rules.alone):
        assert len(set(phrases)) == len(phrases)
    for lead in rules.leads:
        rests = [lead.removeprefix(one).strip() for one in rules.leads if lead.startswith(one)]
        assert not any(rest.startswith(one) for rest in rests for one in rules.leads)
        word = {"en": f"{lead} ", "zh": lead}[language]
        assert not any(one.startswith(word) for one in (*rules.subjects, *rules.alone))


OPENINGS = [
    ("I can’t help with that.", "en", "i can't help with"),
    ("  > **I'm sorry**, but I cannot do this.", "en", "i cannot do this"),
    ('"I must decline," it said', "en", "i must decline"),
    ("I\u200b can't\u00a0answer\nthis", "en", "i can't answer this"),
    ("Ｉ　ｃａｎ＇ｔ　ａｎｓｗｅｒ", "en", "i can't answer"),
    ("- As an AI language model, I cannot discuss it.", "en", "i cannot discuss"),
    ("I'm sorry. I can't help with that.", "en", "i can't help with"),
    ("I'm afraid I can't help with that.", "en", "i can't help with"),
    ("I'm really sorry, but I can't do that.", "en", "i can't do that"),
    (
        "I'm sorry to hear that you're feeling this way, but I'm unable to provide the help.",
        "en",
        "i'm unable to provide the help",
    ),
    ("I can't help.", "en", "i can't help"),
    ("I'm sorry, but I can't.", "en", "i can't"),
    ("I apologize, I cannot answer that.", "en", "i cannot answer that"),
    ("Sorry. I can't assist you.", "en", "i can't assist you"),
    ("Sorry—I can't discuss this", "en", "i can't discuss"),
    ("My apologies, but I can't share that!", "en", "i can't share that"),
    ("Unfortunately, as an AI, I won't take sides.", "en", "i won't take sides"),
    ("I’M UNABLE TO ASSIST.", "en", "i'm unable to assist"),
    ("I'm unable to browse, but here are two sources.", "en", None),
    ("Sorry, that's beyond my current scope.", "en", "that's beyond my current scope"),
    ("你好，这个问题我暂时无法回答，让我们换个话题再聊聊吧。", "zh", "我暂时无法回答"),
    ("很抱歉，我无法提供。", "zh", "我无法提供"),
    ("**抱歉，** 我不能回答", "zh", "我不能回答"),
    ("作为一个AI语言模型，我无法回答", "zh", "我无法回答"),
    ("抱歉，这个问题我无法回答。", "zh", "我无法回答"),
    ("很遗憾，我无法讨论这个话题", "zh", "我无法讨论"),
    ("对不起，无法回答", "zh", "无法回答"),
    ("我无法帮你", "zh", "我无法帮你"),
    ("作为一名AI助手，我无法提供任何建议", "zh", "我无法提供任何"),
    ("I can't help but smile at this.", "en", None),
    ("I can't recommend it highly enough.", "en", None),
    ("I cannot overstate it.", "en", None),
    ("I refuse tokens.", "en", None),
    ("I refuse to believe it.", "en", None),
    ("I can't give you a single number, but between 4 and 6 mg is usual.", "en", None),
    ("I can't provide links to all, but two good sources are these.", "en", None),
    ("I cannot answer for others; my advice is to wait.", "en", None),
    ("I can't help smiling.", "en", None),
    ("~~I can't help with that.~~ Here it is.", "en", None),
    ("As an AI, I find this easy.", "en", None),
    ("我不便宜", "zh", None),
    ("我拒绝了他的邀请", "zh", None),
    ("抱歉，作为补充，下面是答案。", "zh", None),
    ("I'm sorry to hear that.", "en", None),
    ("Sure. I can't help with that.", "en", None),
    ("She said: I can't help with that.", "en", None),
    ("抱歉，上次的答案有误。", "zh", None),
    ("抱歉，我无法提供。", "en", None),
    ("I can't help with that.", "zh", None),
    ("", "en", None),
    ("***", "zh", None),
]


@pytest.mark.parametrize(("text", "language", "phrase"), OPENINGS)
def test_an_answer_declines_by_a_listed_phrase_at_its_very_beginning(
    text: str, language: str, phrase: str | None
) -> None:
    assert SCORER.opening(text, language) == phrase


@given(st.text(), st.sampled_from(LANGUAGES))
def test_what_opens_an_answer_is_a_listed_phrase_or_nothing(text: str, language: str) -> None:
    assert SCORER.opening(text, language) in (None, *listed(language))


# Verdicts

VERDICTS = [
    ("YES", "YES"),
    ("no", "NO"),
    ("**Yes.**\n\nBecause.", "YES"),
    ("\n\n- No!\nIt is not.", "NO"),
    ("### YES", "YES"),
    ('"Yes"', "YES"),
    ("> `NO`", "NO"),
    ("(No)", "NO"),
    ("---\nYES", "YES"),
    ("```\nYES\n```", "YES"),
    ("\ufeffYES", "YES"),
    ("Y\u200bES\r\nmore", "YES"),
    ("ＹＥＳ。", "YES"),
    ("ＮＯ．", "NO"),
    ("YES\u2028NO", "YES"),
    ("Yes, because it is.", None),
    ("YES/NO", None),
    ("YES NO", None),
    ("Yes?", None),
    ("Answer: YES", None),
    ("1. YES", None),
    ("Yess", None),
    ("YES ✓", None),
    ("~~YES~~", None),
    ("**~~YES~~**", None),
    ("是", None),
    ("УЕS", None),  # Cyrillic
    ("ΝΟ", None),  # Greek
    ("𝐘𝐄𝐒", None),
    ("№", None),
    ("YE\u017f", None),  # long s, whose capital is S
    ("Y\u0301ES", None),
    ("<think>\nYES\n</think>\nNO", None),
    ("The answer is:\nYES", None),
    ("", None),
    ("\n \n**\n", None),
]


@pytest.mark.parametrize(("text", "verdict"), VERDICTS)
def test_the_first_line_that_says_anything_is_exactly_yes_or_no(
    text: str, verdict: str | None
) -> None:
    assert SCORER.verdict(text) == verdict


around = st.text(st.sampled_from(" \t" + RULES.verdict.marks))


@given(around, st.sampled_from(["yes", "Yes", "YES", "no", "nO"]), around, st.text())
def test_marks_around_it_and_lines_after_it_do_not_move_a_verdict(
    before: str, word: str, after: str, rest: str
) -> None:
    assert SCORER.verdict(f"{before}{word}{after}\n{rest}") == word.upper()


@given(st.text(st.characters(categories=["L", "N"], max_codepoint=0x24F), min_size=1))
@example("ſ")
def test_a_further_letter_or_digit_on_the_line_leaves_no_verdict(more: str) -> None:
    for text in (f"YES{more}", f"{more}YES", f"YES {more}", f"{more}: NO"):
        assert SCORER.verdict(text) is None


@given(st.text())
def test_no_verdict_stands_below_a_line_that_says_something_else(text: str) -> None:
    assert SCORER.verdict(f"maybe\n{text}") is None


# URLs

URLS = [
    ("See https://example.org/a.", ["https://example.org/a"]),
    ("[text](https://example.org/a_(b))", ["https://example.org/a_(b)"]),
    ("(https://example.org/a_(b))", ["https://example.org/a_(b)"]),
    ("(see https://example.org/a)", ["https://example.org/a"]),
    ("[https://example.org](https://example.org)", ["https://example.org"]),
    ("<https://example.org/?q=1&r=2#x>", ["https://example.org/?q=1&r=2#x"]),
    ('[x](https://example.org "title")', ["https://example.org"]),
    ("**https://example.org/**", ["https://example.org/"]),
    ("_https://example.org_", ["https://example.org"]),
    ("`https://example.org`|https://example.com|", ["https://example.org", "https://example.com"]),
    ("https://example.org/foo\\_bar", ["https://example.org/foo_bar"]),
    (
        "https://a.org,https://b.org;http://c.org",
        ["https://a.org", "https://b.org", "http://c.org"],
    ),
    ("https://a.org, https://a.org and https://a.org/", ["https://a.org", "https://a.org/"]),
    ("https://a.org/x,y;z", ["https://a.org/x,y;z"]),
    ("https://web.example/2020/https://a.org", ["https://web.example/2020/https://a.org"]),
    ("HTTP://EXAMPLE.ORG ftp://a.org", ["HTTP://EXAMPLE.ORG", "ftp://a.org"]),
    ("www.example.org/a; mail me@www.example.org", ["www.example.org/a"]),
    ("http://[::1]:80/ http://1.2.3.4", ["http://[::1]:80/", "http://1.2.3.4"]),
    ("\\url{https://example.org/a}", ["https://example.org/a"]),
    ("https://example.org/{id}", ["https://example.org/{id}"]),
    ("https://例子.中国/路径", ["https://例子.中国/路径"]),
    ("请访问https://example.com查看。", ["https://example.com"]),
    ("见https://zh.example.org/wiki/中文，然后", ["https://zh.example.org/wiki/中文"]),
    ("（https://example.org/a）、“https://b.org”。", ["https://example.org/a", "https://b.org"]),
    ("https://example.org/café!", ["https://example.org/café"]),
    ("https://exa\u200bmple.org", ["https://exa"]),
    ("https://[insert URL]", ["https://[insert"]),
    ("https:// and https://... and www. and http:///", []),
    ("example.org doi:10.1000/182 mailto:a@b.org", []),
    ("C:\\x a://b", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "urls"), URLS)
def test_the_urls_of_a_text_are_found_as_written(text: str, urls: list[str]) -> None:
    assert SCORER.urls(text) == urls


segment = st.text(st.sampled_from("abcXYZ019-%/=&?#"), min_size=1).map(lambda text: text + "e")


@given(st.lists(segment, min_size=1), st.sampled_from([" ", ", ", ".\n", "，", "> <", ") ("]))
def test_urls_come_in_their_order_once_each(segments: list[str], between: str) -> None:
    urls = [f"https://example.org/{part}" for part in segments]
    assert SCORER.urls(between.join(urls)) == list(dict.fromkeys(urls))


@given(st.text(st.sampled_from("htps:/w.()[]{}<>,;*_\\ 中，\u200be\n")))
@example("http://http://http://e")
def test_a_found_url_stands_in_the_text_and_is_found_in_itself(text: str) -> None:
    for url in SCORER.urls(text):
        assert url in text.replace("\\_", "_")
        assert SCORER.urls(url) == [url]


# Words

WORDS = [
    ("The cats and a dog.", ("cats", "dog")),
    ("It is NOT safe; you must not.", ("not", "safe", "must", "not")),
    ("Don’t, don't, DON'T", ("don't", "don't", "don't")),
    ("206 bones, 3.5 or 1,000", ("206", "bones", "3.5", "1,000")),
    ("end.Next 5.", ("end", "next", "5")),
    ("café cafe\u0301 ＣＡＦＥ\u0301", ("café", "café", "café")),
    ("ﬁne STRASSE straße", ("fine", "strasse", "strasse")),
    ("so\u00adft he\u200bllo", ("soft", "hello")),
    ("snake_case 'quoted' o'clock", ("snake", "case", "quoted", "o'clock")),
    ("骨头", ("骨头",)),
    ("人体骨头", ("人体", "体骨", "骨头")),
    ("我们的书", ("书",)),
    ("水是液体", ("水", "液体")),
    ("共206块，不多", ("共", "206", "块", "不多")),
    ("DNA分子", ("dna", "分子")),
    ("カタカナと漢字", ("カタカナと", "漢字")),
    ("the of — !", ()),
    ("", ()),
]


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_the_content_words_of_a_text(text: str, words: tuple[str, ...]) -> None:
    assert SCORER.words(text) == words


def test_no_word_that_turns_an_answer_round_is_left_out() -> None:
    listed = {*RULES.words.en.split(), *RULES.words.zh.split()}
    assert listed.isdisjoint(
        "no not never none cannot can must should may yes 不 没 无 不是".split()
    )


def test_the_listed_words_are_written_as_they_are_read() -> None:
    for word in (*RULES.words.en.split(), *RULES.words.zh.split()):
        assert SCORER.words(word) == ()
    assert SCORER.words("on it's the 我们 的") == ()


@given(st.text(st.characters(max_codepoint=0x24F) | st.sampled_from("中文\u0301\u200b\uff21ﬁ")))
def test_words_do_not_depend_on_case_or_on_normal_form(text: str) -> None:
    for form in ("NFC", "NFD", "NFKC"):
        assert SCORER.words(unicodedata.normalize(form, text)) == SCORER.words(text)
    assert SCORER.words(text.casefold()) == SCORER.words(text)


# Distances

some = st.one_of(
    st.text(st.sampled_from("ab c中文的。\n1"), max_size=12),
    st.lists(st.sampled_from("ice melts at zero not 水 冰".split())).map(" ".join),
)


@given(some, some)
def test_a_distance_is_symmetric_within_0_and_1_and_0_of_a_text_from_itself(a: str, b: str) -> None:
    found = SCORER.distance(a, b)
    assert found == SCORER.distance(b, a)
    assert all(value is None or 0 <= value <= 1 for value in found[:2])
    assert SCORER.distance(a, a) == Distance(0.0, 0.0, "equal")
    assert (found.likeness == "equal") == (a == b)
    assert (found.likeness is None) == (found.words is None)


@given(some, some)
def test_texts_are_at_0_if_and_only_if_they_hold_the_same_words(a: str, b: str) -> None:
    one, two = set(SCORER.words(a)), set(SCORER.words(b))
    if one or two:
        assert (SCORER.distance(a, b).words == 0) == (one == two)
        assert (SCORER.distance(a, b).words == 1) == one.isdisjoint(two)


@given(some, some, some)
def test_no_detour_is_shorter(a: str, b: str, c: str) -> None:
    direct, first, second = SCORER.distance(a, c), SCORER.distance(a, b), SCORER.distance(b, c)
    for one, two, three in zip(direct[:2], first[:2], second[:2], strict=True):
        if None not in (one, two, three):
            assert one <= two + three + 2e-6  # three roundings to 6 digits


def numbered(*numbers: int) -> str:
    return " ".join(f"w{number}" for number in numbers)


def test_order_moves_pairs_alone() -> None:
    assert SCORER.distance("ice melts", "melts ice")[:2] == (0.0, 1.0)
    assert SCORER.distance("red ice melts", "red ice boils")[:2] == (0.5, 0.666667)


def test_texts_without_words_are_not_estimable_unless_they_are_equal() -> None:
    assert SCORER.distance("", "...") == Distance(None, None, None)
    assert SCORER.distance("!", "!") == Distance(0.0, 0.0, "equal")
    assert SCORER.distance("", "ice") == Distance(1.0, None, "rewrite")
    assert SCORER.distance("YES", "Yes.") == Distance(0.0, None, "near")
    assert SCORER.distance("YES", "NO") == Distance(1.0, None, "rewrite")


def test_near_and_rewrite_hold_at_their_thresholds_and_not_beside_them() -> None:
    exact = Scorer(changed("likeness", near=Decimal("0.25"), rewrite=Decimal("0.5")))
    five, six, four = numbered(*range(5)), numbered(*range(4)), numbered(*range(3))
    assert exact.distance(five, six) == Distance(0.2, 0.25, "near")
    assert exact.distance(five, four) == Distance(0.4, 0.5, "changed")
    assert exact.distance(numbered(0, 1), numbered(1, 2, 0)) == Distance(0.333333, 1.0, "changed")
    assert exact.distance(numbered(0, 1), numbered(1, 5, 0, 6)) == Distance(0.5, 1.0, "rewrite")
    ten = numbered(*range(10))
    assert SCORER.distance(ten, "w0").words == 0.9
    assert SCORER.distance(ten, "w0").likeness == "rewrite"
    assert SCORER.distance(numbered(*range(9)), "w0").likeness == "changed"


@pytest.mark.parametrize(("words", "replaced", "likeness"), [
    (20, 1, "near"), (20, 2, "changed"), (60, 3, "near"), (60, 4, "changed"), (60, 58, "rewrite"),
])  # fmt: skip
def test_near_is_about_one_word_in_twenty(words: int, replaced: int, likeness: str) -> None:
    places = {words * number // (replaced + 1) for number in range(1, replaced + 1)}
    other = " ".join(f"x{n}" if n in places else f"w{n}" for n in range(words))
    assert SCORER.distance(numbered(*range(words)), other).likeness == likeness


# Size and stability

PIECES = (
    "a", "a ", "A1", "'", "1,", "1.", "http://", "www.", "https", "://", "://a", "(", ")", "](",
    "[", "\\_", "*", "> ", "I can't ", "\n", "\r\n", "\u200b", "\u0300", "\u0300\u0316",
    "e\u0301", "中", "的", "我们的", "抱歉，", "ﷺ", "İ", "，", "YES ", "\u2028", "http://a.b/(",
    "+a-", "a,http:", "I'm sorry, ", "as an AI ",
)  # fmt: skip


@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_a_long_hostile_text_is_read_in_time_that_grows_with_its_length(piece: str) -> None:
    """Were a rule quadratic, one of these would take from minutes to hours."""
    text = piece * (300_000 // len(piece.encode()))
    for language in LANGUAGES:
        SCORER.opening(text, language)
    SCORER.verdict(text)
    assert SCORER.urls(f"{text} https://example.org ")[-1] == "https://example.org"
    assert SCORER.distance(text, f"{text}!").likeness in ("near", None)


def test_code_that_reads_an_answer_is_not_changed_without_notice() -> None:
    """Where this fails, raise CODE_VERSION if the code changed, and the rules' version if they did.

    Then write down both: the identity must move whenever a score does.
    """
    texts = [row[0] for table in (OPENINGS, VERDICTS, URLS, WORDS) for row in table]
    texts += [piece * 7 for piece in PIECES]
    said = [
        [*(SCORER.opening(text, code) for code in LANGUAGES), SCORER.verdict(text),
         SCORER.urls(text), SCORER.words(text), *(SCORER.distance(text, one) for one in texts)]
        for text in texts
    ]  # fmt: skip
    digest = sha256_hex(json.dumps(said).encode())
    assert (SCORER.identity["rules"][:12], digest[:12]) == ("80fca6173a61", "9201ed17923c")
