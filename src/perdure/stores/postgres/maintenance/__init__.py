"""Operations on a whole database: copy, salvage, measure, collect garbage, rehearse migrations."""
