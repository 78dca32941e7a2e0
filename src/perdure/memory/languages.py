"""Detect the language of a question by its function words, and find the stems of words.

A question is in the language to which most of its function words belong. The words of the question
and of texts are compared by their stems in the question's language (Snowball). If a word is in
another script than the question's language, the script of the word determines the stemmer. If no
stemmer fits, words with the same beginning count as equal. In scripts without spaces, each
character counts as a word, and words are compared without stems.
"""

from __future__ import annotations

import importlib
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple, Protocol, cast

from perdure.session.search.words import terms

_FUNCTION_WORDS = {
    "english": """
        a about above after again against all also am an and any are aren as at be because been
        before being below between both but by can cannot could couldn d did didn do does doesn
        doing don down during each ever every few for from further get gets getting give given go
        goes going got had hadn has hasn have haven having he her here hers herself him himself
        his how i if in into is isn it its itself just ll let like m make many may me might more
        most much must my myself no nor not now of off on once one only or other our ours
        ourselves out over own re s said same say says shall she should shouldn so some such t tell
        than that the told
        their theirs them themselves then there these they this those through to too under until
        up us ve very was wasn we were weren what when where which while who whom whose why will
        with would wouldn you your yours yourself yourselves""",
    "german": """
        aber alle allem allen aller alles als also am an ander andere anderem anderen anderer auch
        auf aus bei beim bin bis bist da dafur dagegen daher dahin damit dann daran darauf daraus
        darin daruber darum das dass davon davor dazu dein deine deinem deinen deiner dem den denn
        der des dessen dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein
        eine einem einen einer eines er es etwas euch euer eure fur gegen habe haben hat hatte
        hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja jede
        jedem jeden jeder jedes jene jetzt kann kein keine keinem keinen keiner konnen konnte mal
        man manche mehr mein meine meinem meinen meiner mich mir mit muss nach nicht nichts noch
        nun nur ob oder ohne schon sehr sein seine seinem seinen seiner seit selbst sich sie sind
        so solche soll sollte sondern sonst uber um und uns unser unsere unter viel vom von vor
        wahrend wann war waren warst warum was weder weg wegen weil weiter welch welche welchem
        welchen welcher welches wem wen wenn wer werde werden wessen wie wieder wieso will wir wird
        wirst wo wodurch wofur wogegen woher wohin wollen wollte womit woran worauf woraus worin
        woruber worum wovon wovor wozu wurde wurden zu zum zur zwar zwischen""",
    "french": """
        a ai au auquel aux auxquels avait avec avez avoir avons c ce cela celle celles celui ces cet
        cette ceux chez combien comme comment d dans de depuis des dit donc dont du duquel elle
        elles en encore entre est estce et etaient etait ete etre eu eux faire fait fut il ils j je
        l la laquelle le lequel les lesquelles lesquels leur leurs lui m ma mais me meme mes moi
        mon n ne ni nos notre nous on ont ou par parce pas pendant peu peut plus pour pourquoi qu
        quand que quel quelle quelles quels qui quoi s sa sans se ses si sien soi son sont sous sur
        t ta te tes toi ton tous tout toute toutes tres tu un une vers vos votre vous y""",
    "spanish": """
        a al algo algun alguna antes aquel asi aun bajo cada como con contra cosa cual cuales
        cuando cuanto cuantos de del desde despues dijo donde dos durante e el ella ellas ellos en
        entre era eran eres es esa esas ese eso esos esta estaba estado estan estar estas este
        esto estos fue fueron ha habia han has hasta hay he hace la las le les lo los mas me mi
        mis mucho muy nada ni no nos nosotros o os otra otro otros para pero poco por porque pues
        que quien quienes se sea ser si sido sin sobre son su sus tambien tan te tenia ti tiene
        todo todos tu tus u un una uno unos usted y ya yo""",
    "italian": """
        a ad agli ai al alla alle allo anche avere aveva c che chi ci come con contro cosa cui da
        dagli dai dal dalla dalle dallo degli dei del della delle dello di dove e ed era erano
        essere fra fu gli ha hai hanno ho i il in io l la le lei li lo loro lui ma me mi mia mie
        miei mio molto ne negli nei nel nella nelle nello no noi non nostro o ogni per perche piu
        poi qual quale quali quando quanto quella quelle quelli quello questa queste questi questo
        se sei si sia siamo sono sta stato su sua sue sugli sul sulla suo suoi te ti tra tu tua
        tuo tutti tutto un una uno vi voi""",
    "portuguese": """
        a ao aos aquela aquele aquilo as ate com como da das de dela dele deles depois do dos e
        ela elas ele eles em entre era eram essa essas esse esses esta estao estar estas estava
        este estes eu foi foram ha isso isto ja lhe lhes mais mas me mesmo meu meus minha minhas
        muito na nao nas nem no nos nossa nosso num numa o onde os ou para pela pelas pelo pelos
        por porque qual quais quando quanto que quem sao se sem ser seu seus so sua suas tambem te
        tem tinha um uma umas uns voce voces""",
    "dutch": """
        aan al alles als altijd andere ben bij daar dan dat de der deze die dit doch doen door dus
        een en er ge geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets
        ik in is ja je kan kon kunnen maar me meer men met mij mijn moet na naar niet niets nog nu
        of om omdat onder ons ook op over reeds te tegen toch toen tot u uit uw van veel voor
        waarom wanneer want waren was wat welke werd wezen wie wij wil worden wordt zal ze zelf
        zich zij zijn zo zonder zou""",
}

_ENGLISH = "english"

_SCRIPTS = {
    "CYRILLIC": "russian",
    "GREEK": "greek",
    "ARABIC": "arabic",
    "DEVANAGARI": "hindi",
    "TAMIL": "tamil",
    "ARMENIAN": "armenian",
}
"""First word of the Unicode name of a letter -> the Snowball stemmer for words of such letters."""

_CERTAIN = 3
"""A question with fewer words may have no function word; in this case, it counts as English."""

_BEGINNING, _ENDING = 4, 3
"""Without a stemmer, words are compared without their last 3 letters; at least 4 letters count."""


class Language(NamedTuple):
    """A language: its Snowball name ("" if there is none), and its folded function words."""

    name: str
    function_words: frozenset[str] = frozenset()

    def stem(self, word: str) -> str:
        """Return the stem of a folded word; the beginning of the word if no stemmer fits."""
        return _stem(self.name, word)

    def same(self, word: str) -> Callable[[str], bool]:
        """Return a predicate that tests whether another word matches `word`."""
        stem = self.stem(word)
        is_stemmed, longest = bool(_stemmer_of(self.name, word)), len(word) + _ENDING

        @cache
        def is_same(said: str) -> bool:
            if is_stemmed:
                return self.stem(said) == stem
            return said.startswith(stem) and len(said) <= longest

        return is_same


_UNKNOWN = Language("")


@cache
def _languages() -> dict[str, Language]:
    return {
        name: Language(name, frozenset(terms(words))) for name, words in _FUNCTION_WORDS.items()
    }


def language_of(words: Sequence[str]) -> Language:
    """Return the language of a question with the folded `words`."""
    known = {
        name: sum(word in language.function_words for word in words)
        for name, language in _languages().items()
    }
    best = max(known, key=lambda name: (known[name], name == _ENGLISH))
    return _languages()[best] if known[best] or len(words) <= _CERTAIN else _UNKNOWN


@lru_cache(maxsize=100_000)
def _stem(language: str, word: str) -> str:
    stemmer = _stemmer_of(language, word)
    if not stemmer:
        return word[: max(_BEGINNING, len(word) - _ENDING)]
    return _stemmer(stemmer).stemWord(word)


def _stemmer_of(language: str, word: str) -> str:
    """Return the stemmer for `word` in a question of `language`; "" if none fits."""
    if word.isascii():
        return language
    script = unicodedata.name(word[0], "").partition(" ")[0]
    return language if script == "LATIN" else _SCRIPTS.get(script, "")


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - the library's name


@cache
def _stemmer(language: str) -> _Stemmer:
    make = cast("Callable[[str], _Stemmer]", importlib.import_module("snowballstemmer").stemmer)
    return make(language)
