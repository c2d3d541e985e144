"""What has hurt readers of weight files, built anew for every format; each class says what must happen.

``kit.py`` has the words: a :class:`~tests.attacks.kit.Family` is one class of attack, its builders make the files of
one format, and where a class cannot be made in a format it says why. ``files.py`` makes the bytes. Nothing here is a
stored file: a reader of this folder sees what each attack is.
"""
