// The pitch as it is played: players and ball where they were last seen, passes and shots as they are detected.
"use strict";
const TEAM_COLORS = ["#1f5fa8", "#e07b00"];

function drawPanel(root, scene) {
  const [w, h] = scene.half, pad = 3;
  const svg = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return made;
  };
  const line = {fill: "none", stroke: "#93a58d", "stroke-width": 0.2};
  const rectangle = (x, y, width, height) => svg("rect", {x, y, width, height, ...line});
  const pitch = svg("svg", {viewBox: `${-w - pad} ${-h - pad} ${2 * (w + pad)} ${2 * (h + pad)}`, width: "100%",
    style: "display:block;background:#e7efe2;border-radius:6px"});
  pitch.append(rectangle(-w, -h, 2 * w, 2 * h), svg("line", {x1: 0, x2: 0, y1: -h, y2: h, ...line}),
    svg("circle", {cx: 0, cy: 0, r: 9.15, ...line}));
  for (const side of [-1, 1]) {
    pitch.append(rectangle(side < 0 ? -w : w - 16.5, -20.16, 16.5, 40.32));
    pitch.append(rectangle(side < 0 ? -w : w - 5.5, -9.16, 5.5, 18.32));
    pitch.append(rectangle(side < 0 ? -w - 2 : w, -3.66, 2, 7.32));
  }
  for (const each of scene.lines) {
    const [x1, y1, x2, y2] = each.line;
    pitch.append(svg("line", {x1, y1: -y1, x2, y2: -y2, stroke: TEAM_COLORS[each.team],
      "stroke-width": each.shot ? 0.6 : 0.3, "stroke-dasharray": each.shot ? "none" : "1 0.6"}));
  }
  for (const [x, y, team, name] of scene.players) {
    pitch.append(svg("circle", {cx: x, cy: -y, r: 1.3, fill: TEAM_COLORS[team]}));
    pitch.append(svg("text", {x, y: -y + 0.5, "font-size": 1.4, fill: "#fff", "text-anchor": "middle"},
      name.replace(/\D+/, "")));
  }
  if (scene.ball) pitch.append(svg("circle", {cx: scene.ball[0], cy: -scene.ball[1], r: 0.7, fill: "#1f2933",
    stroke: "#fff", "stroke-width": 0.2}));
  const list = document.createElement("div");
  list.style.cssText = "font-size:13px;margin-top:8px;column-width:15em;min-height:5.5em";
  const time = document.createElement("b");
  time.textContent = scene.clock;
  list.append(time, ...scene.events.map(text => {
    const row = document.createElement("div");
    row.textContent = text;
    return row;
  }));
  root.replaceChildren(pitch, list);
}
