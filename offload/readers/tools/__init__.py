"""What the tools that people already run print: the shape of a machine, measured rates, engines' logs.

One module for each format. Each has `LOOKS_LIKE`, what it is called; `is_it(text)`, whether a text is of its kind; and
`read(text)`, which gives a Finding or raises ReadingError.
"""
