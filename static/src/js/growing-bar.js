// A timeline whose last part goes on: each second its parts are laid out between the first moment
// and now. Times are seconds since the epoch; a flag has no end and keeps its width.
export default function growingBar(bar) {
  const timer = setInterval(() => {
    if (!bar.isConnected) {
      clearInterval(timer);
      return;
    }
    const parts = [...bar.children];
    const last = parts.findLast((part) => part.dataset.ended);
    const began = Number(parts[0]?.dataset.began);
    const whole = Date.now() / 1000 - began;
    if (!(whole > 0)) return;
    for (const part of parts) {
      const from = Number(part.dataset.began) - began;
      const to = part === last ? whole : Number(part.dataset.ended) - began;
      part.setAttribute("x", `${(100 * from) / whole}%`);
      if (part.dataset.ended) part.setAttribute("width", `${(100 * Math.max(0, to - from)) / whole}%`);
    }
  }, 1000);
}
