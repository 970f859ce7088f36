// The pitch as it is played: players and ball where they were last seen, passes and shots as they are detected.
"use strict";
document.head.append(Object.assign(document.createElement("style"), {textContent: `
  .pitch { --grass: #e7efe2; --lines: #93a58d; --one: #1f5fa8; --two: #e07b00; --ball: #1f2933; --edge: #fff;
    display: block; background: var(--grass); border-radius: 6px; }
  @media (prefers-color-scheme: dark) {
    .pitch { --grass: #202b20; --lines: #5d7256; --one: #3d82d0; --two: #d97a08; --ball: #fff; --edge: #1f2933; }
  }
  .pitch .field { fill: none; stroke: var(--lines); stroke-width: .2; }
  .pitch text { fill: #fff; font-size: 1.4px; text-anchor: middle; }
  .pitch-events { font-size: 13px; margin-top: 8px; column-width: 15em; min-height: 3em; }`}));

function drawPanel(root, scene) {
  const svg = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return made;
  };
  const team = number => `var(${number ? "--two" : "--one"})`;
  if (!root.querySelector(".pitch")) {
    const [w, h] = scene.half, pad = 3;
    const rectangle = (x, y, width, height) => svg("rect", {x, y, width, height});
    const field = svg("g", {class: "field"});
    field.append(rectangle(-w, -h, 2 * w, 2 * h), svg("line", {x1: 0, x2: 0, y1: -h, y2: h}),
      svg("circle", {cx: 0, cy: 0, r: 9.15}));
    for (const side of [-1, 1])
      field.append(rectangle(side < 0 ? -w : w - 16.5, -20.16, 16.5, 40.32),
        rectangle(side < 0 ? -w : w - 5.5, -9.16, 5.5, 18.32), rectangle(side < 0 ? -w - 2 : w, -3.66, 2, 7.32));
    const pitch = svg("svg", {class: "pitch", width: "100%",
      viewBox: `${-w - pad} ${-h - pad} ${2 * (w + pad)} ${2 * (h + pad)}`});
    pitch.append(field, svg("g", {class: "lines"}), svg("g", {class: "players"}),
      svg("circle", {class: "ball", r: 0.7, fill: "var(--ball)", stroke: "var(--edge)", "stroke-width": 0.2}));
    root.replaceChildren(pitch, Object.assign(document.createElement("div"), {className: "pitch-events"}));
  }
  // Elements are moved, not made anew: a browser would collect thousands of them a second.
  const players = root.querySelector(".players");
  if (players.childElementCount !== scene.players.length) players.replaceChildren(...scene.players.map(player => {
    const made = svg("g", {});
    made.append(svg("circle", {r: 1.3, fill: team(player[2])}), svg("text", {y: 0.5}, player[3].replace(/\D+/, "")));
    return made;
  }));
  scene.players.forEach(([x, y], at) => players.children[at].setAttribute("transform", `translate(${x} ${-y})`));
  const ball = root.querySelector(".ball");
  ball.setAttribute("visibility", scene.ball ? "visible" : "hidden");
  if (scene.ball) ball.setAttribute("transform", `translate(${scene.ball[0]} ${-scene.ball[1]})`);
  const lines = root.querySelector(".lines"), drawn = JSON.stringify(scene.lines);
  if (lines.drawn !== drawn) {
    lines.drawn = drawn;
    lines.replaceChildren(...scene.lines.map(({team: number, line: [x1, y1, x2, y2], shot}) => svg("line", {x1, y1: -y1,
      x2, y2: -y2, stroke: team(number), "stroke-width": shot ? 0.6 : 0.3, "stroke-dasharray": shot ? "none" : "1 0.6"})));
  }
  const list = root.querySelector(".pitch-events"), texts = [scene.clock, ...scene.events];
  if (list.childElementCount !== texts.length)
    list.replaceChildren(...texts.map((text, at) => document.createElement(at ? "div" : "b")));
  texts.forEach((text, at) => { if (list.children[at].textContent !== text) list.children[at].textContent = text; });
}
