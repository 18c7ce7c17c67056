// Names and keyboard access that pages of the theme lack, as axe-core asks for them.
addEventListener("DOMContentLoaded", () => {
  const all = (selector, change) => document.querySelectorAll(selector).forEach(change);
  all(".sidebar-drawer", part => { part.ariaLabel = "Pages"; });
  all(".toc-drawer", part => { part.ariaLabel = "On this page"; });
  all("p[role=heading]", caption => { caption.ariaLevel = 2; });
  all("th", head => { if (!head.textContent.trim()) head.role = "cell"; });
  if (!document.querySelector("h1"))  // the search
    all(".sidebar-brand-text", title => { title.role = "heading"; title.ariaLevel = 1; });

  const findScrollable = () => all("pre, .table-wrapper", part => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  });
  findScrollable();
  addEventListener("resize", findScrollable);
});
