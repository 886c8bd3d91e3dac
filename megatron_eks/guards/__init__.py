"""Pure checks of what this project renders: templates and manifests, fresh or edited by hand.

A guard is a function of one module here, marked by `template_guard` or `manifest_guard`. It is
admitted if a slip of one place in our own output is noticed by it alone, or if the mistake has cost
GPU hours. Its docstring says why, and where that can be read. It yields what the methods and
functions of values.py find: `must_hold` for what a place must be, `report` for everything else.
"""
