"""Operations on a whole folder: copy, salvage and measure streams; check the index."""
