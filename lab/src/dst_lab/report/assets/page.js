/* Contents that stay in view, and say where the reader is. */
(function contents() {
  const links = new Map([...document.querySelectorAll("nav.contents a")].map((link) => [link.hash.slice(1), link]));
  const parts = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
  const inView = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? inView.add(target) : inView.delete(target);
    const current = parts.find((part) => inView.has(part));
    for (const [id, link] of links) {
      if (current && id === current.id) {
        link.setAttribute("aria-current", "true");
        /* On a phone the row is wider than the screen: what is read stays in view. */
        link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.clientWidth / 2 + link.offsetWidth / 2;
      }
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-64px 0px -60% 0px" });
  parts.forEach((part) => observer.observe(part));
})();

/* A term's meaning, where it stands: for a pointer, for the keyboard, for a finger. */
(function terms() {
  for (const term of document.querySelectorAll("a.term")) {
    const meaning = document.getElementById(term.hash.slice(1)).querySelector("dd").textContent;
    const hide = () => { tip.hidden = true; removeEventListener("scroll", hide); };
    const show = () => { const box = term.getBoundingClientRect(); showTip(box.left, box.top, meaning); addEventListener("scroll", hide, { passive: true }); };
    term.addEventListener("pointerenter", show);
    term.addEventListener("pointerleave", hide);
    term.addEventListener("focus", show);
    term.addEventListener("blur", hide);
    term.addEventListener("click", (event) => { event.preventDefault(); event.stopPropagation(); show(); });
    term.setAttribute("aria-description", meaning);
  }
})();

/* A table that is wider than its place says so, at the side where more is. */
(function cues() {
  const told = (frame) => {
    const rest = frame.scrollWidth - frame.clientWidth;
    frame.parentElement.classList.toggle("more-right", frame.scrollLeft < rest - 2);
    frame.parentElement.classList.toggle("more-left", rest > 2 && frame.scrollLeft > 2);
  };
  const observer = new ResizeObserver((entries) => entries.forEach(({ target }) => told(target.matches(".scroll") ? target : target.parentElement)));
  for (const frame of document.querySelectorAll(".scroll")) {
    frame.parentElement.prepend(make("span", { class: "cue", "aria-hidden": true }, "scroll sideways for more →"));
    frame.addEventListener("scroll", () => told(frame), { passive: true });
    observer.observe(frame);
    observer.observe(frame.querySelector("table"));
  }
})();

/* A verdict that is linked to is opened. */
(function unfolding() {
  const unfold = () => {
    const there = location.hash.startsWith("#verdict-") && document.getElementById(location.hash.slice(1));
    if (there) { there.open = true; there.scrollIntoView(); there.querySelector("summary").focus({ preventScroll: true }); }
  };
  addEventListener("hashchange", unfold);
  unfold();
  /* What is folded on a screen is not lost on paper. */
  let folded = [];
  addEventListener("beforeprint", () => { folded = [...document.querySelectorAll("details.verdict:not([open]), details.fold:not([open])")]; folded.forEach((one) => { one.open = true; }); });
  addEventListener("afterprint", () => { folded.forEach((one) => { one.open = false; }); });
})();
