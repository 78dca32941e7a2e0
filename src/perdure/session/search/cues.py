"""Find out whether a text asks a question, and whether it names a time: the cues of the text.

Recall weighs the cues of texts (``perdure.memory.ranking``). A change of this module changes the
content of indexes, so raise ``words.VERSION``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag

_TIME_WORDS = {
    "english": """
        yesterday today tomorrow morrow tonight ago last next week weeks weekend month months year
        years day days monday tuesday wednesday thursday friday saturday sunday mondays tuesdays
        wednesdays thursdays fridays saturdays sundays january february march april june july august
        september october november december recently soon earlier later since spring summer autumn
        winter morning noon afternoon evening night midnight clock""",
    "german": """
        gestern heute morgen vorgestern letzte letzten letztes letzter nachste nachsten woche
        wochen monat monate jahr jahre jahren tag tage montag dienstag mittwoch donnerstag freitag
        samstag sonntag januar februar marz mai juni juli oktober dezember kurzlich fruhling
        sommer herbst uhr abend abends nachts""",
    "french": """
        demain aujourd semaine semaines mois ans annee annees jour jours lundi mardi
        mercredi jeudi vendredi samedi dimanche janvier fevrier mars avril juin juillet aout
        septembre octobre novembre decembre dernier derniere prochain prochaine recemment hiver
        printemps automne heure heures matin midi soir minuit""",
    "spanish": """
        ayer hoy manana semana semanas meses ano anos dia dias lunes martes miercoles jueves
        viernes sabado domingo enero febrero marzo abril mayo junio julio agosto septiembre
        octubre noviembre diciembre pasado pasada proximo proxima verano invierno primavera
        otono""",
    "italian and portuguese": """
        ieri oggi domani settimana settimane mese mesi anno anni giorno giorni lunedi martedi
        giovedi venerdi domenica gennaio febbraio maggio giugno luglio settembre ottobre dicembre
        ontem hoje amanha janeiro fevereiro maio junho julho setembro outubro novembro dezembro""",
}
"""Words that name a time, by language. The words of all languages apply to every text.

Words that have a frequent other meaning in another language are therefore left out: "an", "été",
"hier", "may", "mes".
"""
_YEARS = range(1900, 2100)

_NAMES_TIME = frozenset([*" ".join(_TIME_WORDS.values()).split(), *map(str, _YEARS)])


class Cue(IntFlag):
    """Flags that say whether a text asks a question or names a time."""

    ASKS = 1
    """The text ends with a question mark."""
    HAS_QUESTION = 2
    """The text contains a question mark."""
    TIME = 4
    """The text names a time: a day, a month, "last week", a year."""


_ASKS, _HAS_QUESTION, _TIME = (cue.value for cue in Cue)
_CUES = [Cue(number) for number in range(8)]

_QUESTION_MARKS = "?？؟"  # noqa: RUF001 - full-width and Arabic question marks
_CLOSING = " \t\r\n\"'”’»)]*_"  # noqa: RUF001 - closing quotation marks


def cues_of(text: str, words: Iterable[str]) -> Cue:
    """Return the cues of `text`, whose folded words are `words`."""
    one, wide, arabic = _QUESTION_MARKS
    cues = 0  # a number until the end: flags are slow
    if one in text or wide in text or arabic in text:
        cues = _HAS_QUESTION
        if text.rstrip(_CLOSING).endswith((one, wide, arabic)):
            cues |= _ASKS
    if not _NAMES_TIME.isdisjoint(words):
        cues |= _TIME
    return _CUES[cues]
