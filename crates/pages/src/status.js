"use strict";
const main = document.querySelector("main");
const state = document.getElementById("state");
async function refresh() {
  // What somebody reads, selects or has in focus is left alone.
  if (document.hidden || main.contains(document.activeElement) || !getSelection().isCollapsed) return;
  try {
    const reply = await fetch(location.pathname + "?part", { cache: "no-store" });
    if (!reply.ok) throw new Error("status " + reply.status);
    const text = await reply.text();
    const offsets = [...main.querySelectorAll(".scroll")].map((region) => region.scrollLeft);
    main.innerHTML = text;
    main.querySelectorAll(".scroll").forEach((region, place) => {
      if (offsets[place]) region.scrollLeft = offsets[place];
    });
    state.textContent = "Updated every second.";
  } catch (error) {
    state.textContent = "No answer: the figures are old.";
  }
}
setInterval(refresh, 1000);
