from __future__ import annotations

from perdure.interop.formats.claude_code.answers import Answers


def test_answer_ends_at_its_newest_block() -> None:
    answers = Answers()
    answers.add_block(1, 0, "m", ["a"])
    answers.add_block(2, 1, "m", ["b"])
    assert [answers.end_at(node) for node in (None, 0, 1, 2)] == [None, 0, 2, 2]


def test_results_of_parallel_calls_follow_each_other() -> None:
    answers = Answers()
    answers.add_block(1, 0, "m", ["a"])
    answers.add_block(2, 1, "m", ["b"])
    answers.add_results(3, answers.end_at(1), ["a"])
    answers.add_results(4, answers.end_at(2), ["b"])
    assert answers.end_at(1) == answers.end_at(3) == 4


def test_block_after_a_tool_result_belongs_to_the_same_answer() -> None:
    answers = Answers()
    answers.add_block(1, 0, "m", ["a"])
    answers.add_results(2, 1, ["a"])
    assert answers.end_at(1) == 2
    answers.add_block(3, 2, "m", ["b"])
    assert answers.end_at(1) == 3


def test_next_answer_of_the_model_is_a_separate_message() -> None:
    answers = Answers()
    answers.add_block(1, 0, "m", ["a"])
    answers.add_results(2, 1, ["a"])
    answers.add_block(3, 2, "n", [])
    assert answers.end_at(2) == 2
    assert answers.end_at(3) == 3


def test_same_answer_id_on_another_branch_starts_another_answer() -> None:
    answers = Answers()
    answers.add_block(1, 0, "m", [])
    answers.add_block(5, 4, "m", [])
    assert answers.end_at(1) == 1


def test_results_of_other_calls_are_not_part_of_answer() -> None:
    answers = Answers()
    answers.add_block(1, 0, "m", ["a"])
    answers.add_results(2, 1, ["z"])
    assert answers.end_at(1) == 1


def test_blocks_without_id_are_separate_answers() -> None:
    answers = Answers()
    answers.add_block(1, 0, None, [])
    answers.add_block(2, 1, None, [])
    assert answers.end_at(1) == 1


def test_answer_ends_at_the_replacement_of_its_result() -> None:
    answers = Answers()
    answers.add_block(1, 0, "m", ["a"])
    answers.add_results(2, 1, ["a"])
    answers.replace(2, 9)
    assert answers.end_at(1) == 9
