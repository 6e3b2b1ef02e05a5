"""Temperatures that a rule sets while a run trains: in a config, the rule by its name."""

from dataclasses import dataclass

from dst_lab.configs.registering import HOW

RULES = {
    "self": "tau_b follows the scale of the logits, tau_f falls while a layer of few bits trains",
    "confidence": "tau_b of each row from how sure its choice is",
}
"""The rules of the library that need no more than their name, and what each does; a test holds them equal."""
BUILT_IN = frozenset(RULES)


@dataclass(frozen=True)
class Ruled:
    """A temperature that the rule of this name sets, with those of its constants that are not the rule's own."""

    name: str
    constants: tuple[tuple[str, float], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Ruled":
        """From a name, or from `name:constant=value:..`, such as "self:high=8:share=0.25". 8 and 8.0 are one rule."""
        name, *rest = text.split(":")
        if name not in RULES:
            raise ValueError(f"unknown rule {name!r}: expected one of {', '.join(RULES)}")
        constants = {}
        for part in rest:
            key, sign, value = part.partition("=")
            if not sign or key in constants:
                raise ValueError(f'a rule is written as "self" or "self:high=8:share=0.25", got {text!r}')
            try:
                number = float(value)
                constants[key] = int(number) if number.is_integer() else number
            except ValueError:
                raise ValueError(f"the constant {key} of the rule {name} takes a number, got {value!r}") from None
        return cls(name, tuple(sorted(constants.items())))

    def to_json(self) -> str:
        """The text that `parse` reads."""
        return ":".join([self.name, *(f"{key}={value}" for key, value in self.constants)])


def register(name: str, about: str, *, replace: bool = False) -> None:
    """Make a rule of your own known to `dst` in this process; the library has to know it by the same name. With
    `replace` the text about it takes the place of another."""
    if name in BUILT_IN:
        raise ValueError(f"there is a rule called {name!r} already: give yours another name")
    if not name.isidentifier():
        raise ValueError(f"a rule's name is letters, digits and underscores, got {name!r}")
    if RULES.get(name, about) != about and not replace:
        raise ValueError(f"there is a rule called {name!r} already, {RULES[name]!r}, now {about!r}: {HOW}")
    RULES[name] = about
