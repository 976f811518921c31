"""Tables and figures of papers, reproduced with Tailback and compared with the published ones.

``python -m studies`` lists them. They use Tailback as any of its users does; nothing of Tailback
uses them. Measurements of Tailback's own speed and accuracy are in ``bench/``.
"""
