"""Operations on a whole database: copy, salvage, statistics, garbage, migration rehearsal."""
