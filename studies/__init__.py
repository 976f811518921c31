"""Tables and figures of papers, reproduced with Tailback: theirs beside ours.

``python -m studies`` lists them. They use Tailback as any of its users does; nothing of Tailback
uses them. Measurements of Tailback's own speed and accuracy are in ``bench/``.
"""
