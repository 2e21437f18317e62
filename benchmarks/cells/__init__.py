"""The cells: one module for each kind of thing that is measured."""
