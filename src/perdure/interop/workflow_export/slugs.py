"""Make ids from titles: Relavium's ASCII slug, and a slug that transliterates non-ASCII titles.

Both kinds of slugs use fixed tables and rules, so a title gives the same id in every release. A
character that is not in the tables is replaced by its Unicode name, which never changes, or by its
code point.
"""

from __future__ import annotations

import re
import unicodedata

FALLBACK = "exported-session"

_NO_ID = re.compile(r"[^a-z0-9]+")
_NAMED = re.compile(r".*\b(?:LETTER|CHARACTER|SYLLABLE|VOWEL SIGN) (?:SMALL |FINAL |NOMINAL )*(.+)")

_LETTERS = """
ß ss æ ae œ oe ø o ł l đ d ð d þ th ı i ħ h ŧ t ŋ ng ĸ k ə e ɛ e ɔ o
α a β v γ g δ d ε e ζ z η i θ th ι i κ k λ l μ m ν n ξ x ο o π p ρ r σ s ς s τ t υ y φ f χ ch
ψ ps ω o
а a б b в v г g д d е e ж zh з z и i й y к k л l м m н n о o п p р r с s т t у u ф f х kh ц ts
ч ch ш sh щ shch ъ . ы y ь . э e ю yu я ya ё yo і i ї yi є ye ґ g ў u ј j љ lj њ nj ћ c ђ dj џ dz
ѓ gj ќ kj ѕ dz
א a ב b ג g ד d ה h ו v ז z ח ch ט t י y כ k ך k ל l מ m ם m נ n ן n ס s ע a פ p ף f צ ts ץ ts ק k
ר r ש sh ת t
ا a ب b ت t ث th ج j ح h خ kh د d ذ dh ر r ز z س s ش sh ص s ض d ط t ظ z ع a غ gh ف f ق q ك k ل l
م m ن n ه h و w ي y ة a ى a ء . پ p چ ch ژ zh گ g
"""  # noqa: RUF001 - letters of other scripts are what the table is about
"""Letters, each followed by its romanization, or by ``.`` if the letter is silent."""

_INITIALS = "g kk n d tt r m b pp s ss . j jj ch k t p h"
_VOWELS = "a ae ya yae eo e yeo ye o wa wae oe yo u wo we wi yu eu ui i"
_FINALS = ". k kk ks n nj nh t l lk lm lb ls lt lp lh m p ps t t ng t t k t p h"
"""Romanization of the final consonants of Korean syllables, in Unicode's order."""


def _sounds(text: str) -> list[str]:
    return [sound.replace(".", "") for sound in text.split()]


_TABLE = dict(zip(_LETTERS.split()[::2], _sounds(_LETTERS)[1::2], strict=True))
_SYLLABLE = (_sounds(_INITIALS), _sounds(_VOWELS), _sounds(_FINALS))
_FIRST_SYLLABLE, _LAST_SYLLABLE = "가", "힣"


def ascii_slug(title: str) -> str:
    """Return Relavium's slug of `title`: all non-ASCII characters count as separators."""
    return _join(title.lower())


def readable_slug(title: str) -> str:
    """Return `title` romanized to ASCII letters."""
    lowered = unicodedata.normalize("NFC", title).lower()
    return _join("".join(_to_ascii(letter) for letter in lowered))


def _join(text: str) -> str:
    return _NO_ID.sub("-", text).strip("-") or FALLBACK


def _to_ascii(letter: str) -> str:
    """Return `letter` in ASCII; return a space if it is not part of a word."""
    if letter.isascii():
        return letter
    if letter in _TABLE:
        return _TABLE[letter]
    if _FIRST_SYLLABLE <= letter <= _LAST_SYLLABLE:
        return _syllable(ord(letter) - ord(_FIRST_SYLLABLE))
    simpler = unicodedata.normalize("NFKD", letter)
    if simpler != letter:
        return "".join(_to_ascii(part) for part in simpler.lower())
    category = unicodedata.category(letter)
    if category in ("Mn", "Me", "Cf"):
        return ""
    if category in ("Nd", "Nl", "No"):
        return f"{unicodedata.numeric(letter, 0):g}"
    return _by_name(letter) if category[0] == "L" or category == "Mc" else " "


def _syllable(number: int) -> str:
    """Return the romanization of the Korean syllable with the index `number`, letter by letter."""
    initials, vowels, finals = _SYLLABLE
    rest, final = divmod(number, len(finals))
    initial, vowel = divmod(rest, len(vowels))
    return initials[initial] + vowels[vowel] + finals[final]


def _by_name(letter: str) -> str:
    """Return the romanization in the Unicode name of `letter`, or else the letter's code point.

    For example, ``HIRAGANA LETTER KA`` gives ``ka``. A letter without a romanization in its Unicode
    name becomes its code point, with spaces around it.
    """
    found = _NAMED.fullmatch(unicodedata.name(letter, ""))
    if found is None:
        return f" u{ord(letter):x} "
    return _NO_ID.sub("", found[1].lower())
