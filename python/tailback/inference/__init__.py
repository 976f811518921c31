"""The verdict on a measured run: hypotheses, their search, and the decision between them."""
