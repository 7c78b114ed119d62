// A log stays at its end while it grows; scrolling up pauses that, the button jumps back.
export default function followEnd(log) {
  const jump = document.getElementById(log.dataset.jump ?? "");
  let isFollowing = true;
  const toEnd = () => {
    log.scrollTop = log.scrollHeight;
  };
  const show = () => {
    if (jump) jump.hidden = isFollowing;
  };
  log.addEventListener("scroll", () => {
    isFollowing = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
    show();
  });
  jump?.addEventListener("click", () => {
    isFollowing = true;
    toEnd();
    show();
  });
  new MutationObserver(() => isFollowing && toEnd()).observe(log, {
    childList: true,
    subtree: true,
    characterData: true,
  });
  toEnd();
  show();
}
