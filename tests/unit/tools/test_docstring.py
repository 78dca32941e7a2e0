from __future__ import annotations

from perdure.tools.docstring import parse_docstring


def test_text_before_the_first_section_is_the_summary() -> None:
    def f() -> None:
        """Send a mail.

        It goes out at once.

        Returns:
            The number of the mail.
        """

    assert parse_docstring(f).summary == "Send a mail.\n\nIt goes out at once."


def test_argument_description_is_joined_into_one_line() -> None:
    def f() -> None:
        """Do it.

        Args:
            path: Where the file
                is.

                Relative.
            limit (int, optional): How many: lines.
            **more: The rest.

        Raises:
            ValueError: never.
        """

    assert parse_docstring(f).parameters == {
        "path": "Where the file is. Relative.",
        "limit": "How many: lines.",
        "more": "The rest.",
    }


def test_docstring_line_without_argument_name_is_ignored() -> None:
    def f() -> None:
        """Do it.

        Args:
            path: Where.
            something without a colon
            limit: How many.
        """

    assert parse_docstring(f).parameters == {"path": "Where.", "limit": "How many."}


def test_function_without_a_docstring_has_empty_texts() -> None:
    def f() -> None: ...

    assert (parse_docstring(f).summary, parse_docstring(f).parameters) == ("", {})
