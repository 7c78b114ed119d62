// The editor of the resource configuration; its modules are loaded only on its page.
export default async function resourceEditor(root) {
  const [{ start }] = await Promise.all([import("./editor/main.js"), loaded()]);
  start(root);
}

/** Until then the library that sorts lists may still be on its way. */
function loaded() {
  if (document.readyState === "complete") return undefined;
  return new Promise((resolve) => {
    addEventListener("load", resolve, { once: true });
  });
}
