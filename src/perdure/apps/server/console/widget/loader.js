// The one script of a host page: it opens the chat of its `data-` attributes in an element of its own.
(() => {
  const tag = document.currentScript;
  const root = new URL("./", tag.src);
  const open = async () => {
    const { mount } = await import(new URL("console/widget/chat.js", root).href);
    mount({ root, ...tag.dataset });
  };
  if (document.body) open();
  else document.addEventListener("DOMContentLoaded", open, { once: true });
})();
