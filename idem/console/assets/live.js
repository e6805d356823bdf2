// Follows the table: when what the page shows has changed, it fetches the page again and
// exchanges its main part, in which nothing can be typed. A page with a form for a decision stays
// as it is, and says that there is news.
"use strict";
(() => {
  let events = null;
  const say = (text) => { document.getElementById("news").textContent = text; };
  const time = () => new Date().toISOString().slice(11, 19) + " UTC";

  const close = () => {
    if (events) events.close();
    events = null;
  };

  const open = () => {
    close();
    const part = document.getElementById("live");
    if (document.hidden || !part || !part.dataset.live) return;
    events = new EventSource(part.dataset.live);
    events.addEventListener("changed", () => {
      if (part.dataset.keep) {
        close();
        say("The record has changed since this page was shown. Go back and look at it again.");
        document.body.classList.add("changed");
        return;
      }
      refresh();
    });
    events.addEventListener("trouble", (e) => say(e.data + ". This page may be out of date."));
  };

  const refresh = async () => {
    close();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const text = await answer.text();
      const next = new DOMParser().parseFromString(text, "text/html");
      const now = document.getElementById("live");
      const then = next.getElementById("live");
      if (!then) throw new Error("no page");
      const focused = now.contains(document.activeElement) ? document.activeElement : null;
      now.replaceWith(document.importNode(then, true));
      document.title = next.title;
      const asOf = document.querySelector("footer time");
      const nextAsOf = next.querySelector("footer time");
      if (asOf && nextAsOf) asOf.replaceWith(document.importNode(nextAsOf, true));
      if (focused) {
        const href = focused.getAttribute("href");
        const again = focused.id ? document.getElementById(focused.id)
          : href ? [...document.querySelectorAll("#live a")].find((a) => a.getAttribute("href") === href) : null;
        (again || document.getElementById("main")).focus({ preventScroll: true });
      }
      say("Updated at " + time() + ".");
    } catch {
      say("The console did not answer. This page may be out of date.");
      setTimeout(open, 5000);
      return;
    }
    open();
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (e) => { if (e.persisted) open(); });

  // A form is sent once. Going back to it makes it usable again.
  const sent = new WeakSet();
  document.addEventListener("submit", (e) => {
    if (e.target.method !== "post") return;
    if (sent.has(e.target)) e.preventDefault();
    sent.add(e.target);
    setTimeout(() => sent.delete(e.target), 2000);
  });
  open();
})();
