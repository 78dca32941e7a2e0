"""One hunk of a diff, computed in linear time."""

from __future__ import annotations

import time

from perdure.tools.diff import MAX_LENGTH, diff_of


def test_diff_of_a_changed_line_has_three_lines_around_it() -> None:
    before = "".join(f"{n}\n" for n in range(10))
    assert diff_of(before, before.replace("5", "five")) == (
        "@@ -3,7 +3,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8"
    )


def test_diff_of_a_new_file_adds_every_line() -> None:
    assert diff_of("", "a\nb\n") == "@@ -1,0 +1,2 @@\n+a\n+b"


def test_diff_marks_a_missing_final_line_end() -> None:
    assert diff_of("a", "a\n") == "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a"


def test_diff_of_equal_texts_is_empty() -> None:
    assert diff_of("a\n", "a\n") == ""


def test_diff_of_a_long_change_is_truncated_with_a_note() -> None:
    cut = diff_of("", "x" * 20_000)
    assert len(cut) < MAX_LENGTH + 100
    assert "the diff is cut here" in cut
    assert "cut here" not in diff_of("", "x" * 20_000, is_whole=True)


def test_diff_of_hostile_texts_takes_linear_time() -> None:
    def seconds(lines: int) -> float:
        before, after = "a\nb\n" * lines, "b\na\n" * lines
        best = 9.0
        for _ in range(3):
            start = time.thread_time()
            diff_of(before, after)
            best = min(best, time.thread_time() - start)
        return best

    assert seconds(80_000) < 12 * seconds(20_000) + 0.05
