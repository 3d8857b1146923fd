// What a page of the site gets wrong; see check_site.py.
({ least, scheme }) => {
  const faults = [];
  const main = document.querySelector("main") ?? document.body;

  const levels = [...main.querySelectorAll("h1, h2, h3, h4, h5, h6")].map((h) => Number(h.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) faults.push("does not have exactly one first-level heading");
  levels.forEach((level, i) => {
    if (i && level > levels[i - 1] + 1) faults.push(`leaves out a level before heading ${i + 1}`);
  });
  for (const image of main.querySelectorAll("img")) {
    if (image.closest(".sphx-glr-thumbcontainer")) continue; // the title of the card names it
    const words = image.getAttribute("alt") ?? "";
    if (words.trim().length < 10 || /\.(png|svg)$|_images/.test(words)) faults.push(`has no alternative text for ${image.src.split("/").pop()}`);
  }
  for (const link of main.querySelectorAll("a[href]")) {
    const name = link.textContent.trim() || link.getAttribute("aria-label") || link.querySelector("img")?.alt || link.title;
    if (!name) faults.push(`has a link without a name to ${link.href}`);
  }
  if (!document.documentElement.lang) faults.push("does not say its language");

  const channels = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const backdrop = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a = 1] = channels(getComputedStyle(e).backgroundColor);
      if (a > 0.99) return [r, g, b];
    }
    return scheme === "dark" ? [0, 0, 0] : [255, 255, 255];
  };
  const poor = new Map();
  const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const style = getComputedStyle(element);
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest("svg, script, style, .headerlink, .copybtn")) continue;
    const [light, dark] = [luminance(channels(style.color)), luminance(backdrop(element))].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : least) - 0.01) poor.set(`${element.tagName.toLowerCase()}.${element.className}`, `${ratio.toFixed(2)} (${walker.currentNode.textContent.trim().slice(0, 20)})`);
  }
  for (const [where, ratio] of poor) faults.push(`has a contrast of ${ratio} in ${where} (${scheme})`);

  return { faults, text: new Blob([main.innerText]).size, links: [...document.querySelectorAll("a[href]")].map((a) => a.href) };
}
