"""Programs that check this repository or generate files. None of them is part of the package."""
