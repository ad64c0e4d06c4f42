// What a person does with the timeline: wheel, pinch, drag, keys, buttons. `act` says what each of them means.

export function listen(canvas, act) {
  const fingers = new Map();
  let moved = 0;

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      act.move(((event.deltaX || event.deltaY) * lines) / canvas.clientWidth);
    } else {
      // A touchpad's pinch comes as a wheel with the control key, in smaller steps.
      act.by(Math.exp(event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)), event.offsetX);
    }
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 1) moved = 0;
  });

  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return act.hover(event.offsetX, event.offsetY);
    const here = { x: event.offsetX, y: event.offsetY };
    fingers.set(event.pointerId, here);
    moved += Math.abs(here.x - before.x) + Math.abs(here.y - before.y);
    if (fingers.size === 2) {
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, it]) => it);
      const apart = (it) => Math.max(10, Math.hypot(it.x - other.x, it.y - other.y));
      return act.by(apart(before) / apart(here), (here.x + other.x) / 2);
    }
    if (moved < 4) return undefined;
    act.slide(before.y - here.y);
    return act.move((before.x - here.x) / canvas.clientWidth);
  });

  const release = (event) => {
    if (fingers.delete(event.pointerId) && event.type === "pointerup" && moved < 4 && fingers.size === 0) {
      act.press(event.offsetX, event.offsetY);
    }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", act.leave);
  canvas.addEventListener("blur", act.leave);

  const keys = {
    ArrowLeft: () => act.move(-0.15),
    ArrowRight: () => act.move(0.15),
    ArrowUp: () => act.slide(-54),
    ArrowDown: () => act.slide(54),
    "+": () => act.by(0.6),
    "=": () => act.by(0.6),
    "-": () => act.by(1 / 0.6),
    "−": () => act.by(1 / 0.6),
    0: act.all,
    Home: act.all,
    Enter: act.enter,
    Escape: act.close,
    f: act.foldChosen,
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const choosing = event.shiftKey && event.key.startsWith("Arrow");
    if (!choosing && !keys[event.key]) return;
    event.preventDefault();
    if (choosing) act.choose(event.key);
    else keys[event.key]();
  });

  for (const button of document.querySelectorAll("[data-flame]")) {
    const does = { in: () => act.by(0.5), out: () => act.by(2), all: act.all, fold: act.foldAll, idle: () => act.toggleIdle(button) };
    button.addEventListener("click", does[button.dataset.flame]);
  }
}
