"use strict";
(() => {
  const SAY = {
    en: {
      title: "Coding sheet", other: "中文", question: "Question", answer: "Answer", note: "Note (optional): what made you doubt",
      back: "← Back", forth: "Next →", undo: "Undo (z)", left: "Next without a label", who: "Another coder", keep: "Keep and hand in", csv: "Download CSV", jsonl: "Download JSON lines",
      import: "Go on from a downloaded JSON lines file:", manual: "The coding manual", name: "Your coder name", begin: "Begin",
      rule: "Lower-case letters, digits, dot, underscore, hyphen. It is published with your labels; a pseudonym will do.",
      intro: (keys) => `Read each answer and choose a label. Keys: ${keys}, ← → to move, z to undo, n for the note, Esc to leave it.`,
      local: "Every key press is kept in this browser, under your name, and nothing is sent anywhere. Download before you clear its data or change machines.",
      cut: "The answer was cut here, at the length limit.", count: (n, all, at) => `${n} of ${all} labelled; answer ${at}`,
      saved: "kept", undone: "undone", none: "nothing to undo", done: "Every answer has a label. Please download and hand in.", gone: "label taken away",
      broken: "This browser keeps nothing for this page: download before you leave it.", foreign: "This file is of another sheet, or none that this page wrote; nothing was taken from it.",
      whose: "This file is of another coder; nothing was taken from it.", taken: (n, kept) => `${n} labels taken; ${kept} that you set here otherwise were left`,
      elsewhere: "The labels were changed in another window of this browser; they are shown here now.", leave: "This browser kept nothing: labels that were not downloaded are lost. Go on to another coder?",
    },
    zh: {
      title: "编码表", other: "English", question: "问题", answer: "回答", note: "备注（可不写）：什么让你犹豫",
      back: "← 上一个", forth: "下一个 →", undo: "撤销 (z)", left: "下一个没有标签的", who: "换编码员", keep: "保存与交回", csv: "下载 CSV", jsonl: "下载 JSON lines",
      import: "从下载的 JSON lines 文件继续：", manual: "编码手册", name: "你的编码员名", begin: "开始",
      rule: "小写字母、数字、点、下划线、连字符。会与标签一起公布，可以用化名。",
      intro: (keys) => `读每个回答，选一个标签。按键：${keys}，← → 移动，z 撤销，n 写备注，Esc 离开备注。`,
      local: "每次按键都保存在这个浏览器里，记在你的名下，不会发送到任何地方。清除浏览器数据或换机器之前请先下载。",
      cut: "回答到这里因长度限制被截断。", count: (n, all, at) => `已标 ${n} / ${all}；第 ${at} 个`,
      saved: "已保存", undone: "已撤销", none: "没有可撤销的", done: "全部有标签了，请下载并交回。", gone: "标签已去掉",
      broken: "这个浏览器不能为本页保存：离开之前请先下载。", foreign: "这个文件属于别的编码表，或不是本页写出的；没有读入。",
      whose: "这个文件属于别的编码员；没有读入。", taken: (n, kept) => `读入 ${n} 个标签；与这里不同的 ${kept} 个保留原样`,
      elsewhere: "标签在本浏览器的另一个窗口里改动了，现在显示的是改动后的。", leave: "这个浏览器没有保存：没有下载的标签会丢失。仍要换编码员吗？",
    },
  };
  const { study, sheet, columns, cut, rows, words: labels, ask } = JSON.parse(document.getElementById("data").textContent);
  const KEYS = Object.fromEntries(labels.map(({ key, name }) => [key, name]));
  const $ = (id) => document.getElementById(id);
  const root = `drift-code:${sheet}`;
  let language = /^zh/i.test(navigator.language) ? "zh" : "en";
  let order = [];
  let state = { coder: "", at: 0, labels: {}, notes: {} };
  const past = [];
  let unsaved = false;

  /** FNV-1a with MurmurHash3's last step: the order that `drift code draw` gives a coder's CSV. */
  const rank = (text) => {
    let value = 0x811c9dc5;
    for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193);
    value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
    value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
    return (value ^ (value >>> 16)) >>> 0;
  };

  /** Show a text as it is, with what cannot be seen or would reorder it written out. */
  const show = (host, text) => {
    const parts = text.split(/((?![\n\t])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\ufffe\uffff])/u);
    host.replaceChildren(...parts.map((part, n) => {
      if (n % 2 === 0) return document.createTextNode(part);
      const mark = document.createElement("span");
      mark.className = "hidden";
      mark.textContent = `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
      return mark;
    }));
  };

  const say = (text) => { $("said").textContent = text; };
  const words = () => SAY[language];
  const part = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const named = (word) => labels.find(({ name }) => name === word)[language];
  const trouble = (text) => { $("trouble").textContent = text; };
  const stored = (coder) => { try { return JSON.parse(localStorage.getItem(`${root}:${coder}`)); } catch { return null; } };

  const save = () => {
    try {
      localStorage.setItem(`${root}:${state.coder}`, JSON.stringify(state));
      localStorage.setItem(root, state.coder);
      unsaved = false;
      if ($("trouble").textContent === words().broken) trouble("");
    } catch {
      unsaved = true;
      trouble(words().broken);
    }
  };

  const row = () => order[state.at];
  const done = () => order.filter(({ id }) => state.labels[id]).length;

  const draw = () => {
    document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
    document.querySelectorAll("[data-say]").forEach((it) => { it.textContent = words()[it.dataset.say]; });
    $("intro").textContent = words().intro(labels.map(({ key, name }) => `${key} ${named(name)}`).join(language === "zh" ? "，" : ", "));
    $("choose").textContent = ask[language];
    $("means").replaceChildren(...labels.flatMap(({ name, means }) => (means.en ? [part("dt", named(name)), part("dd", means[language])] : [])));
    document.title = words().title;
    $("language").textContent = words().other;
    $("language").lang = language === "zh" ? "en" : "zh-CN";
    for (const id of ["back", "forth", "undo", "left", "who", "csv", "jsonl"]) $(id).textContent = words()[id];
    $("manual-en").hidden = language !== "en";
    $("manual-zh").hidden = language !== "zh";
    $("start").hidden = Boolean(state.coder);
    $("work").hidden = !state.coder;
    if (!state.coder) return;
    const { id, question, answer, cut: ended, language: spoken } = row();
    for (const [host, text] of [["question", question], ["answer", answer]]) {
      show($(host), text);
      $(host).lang = spoken;
    }
    $("cut").textContent = ended ? words().cut : "";
    for (const press of $("labels").children) {
      press.setAttribute("aria-pressed", String(state.labels[id] === press.value));
      press.firstChild.textContent = `${named(press.value)} `;
    }
    $("note").value = state.notes[id] ?? "";
    $("bar").max = order.length;
    $("bar").value = done();
    $("count").textContent = `${words().count(done(), order.length, state.at + 1)} · ${state.coder}`;
    $("back").disabled = state.at === 0;
    $("forth").disabled = state.at === order.length - 1;
  };

  const go = (at) => {
    state.at = Math.max(0, Math.min(order.length - 1, at));
    save();
    draw();
    scrollTo(0, 0);
  };

  const label = (word) => {
    const { id } = row();
    past.push({ id, before: state.labels[id] });
    const same = state.labels[id] === word;
    if (same) delete state.labels[id]; else state.labels[id] = word;
    const here = state.at + 1;
    go(same ? state.at : state.at + 1);
    say(same ? `${here}: ${words().gone}` : done() === order.length ? words().done : `${here}: ${named(word)}, ${words().saved}`);
    $("a").focus({ preventScroll: true });
  };

  const undo = () => {
    const last = past.pop();
    if (!last) return say(words().none);
    if (last.before) state.labels[last.id] = last.before; else delete state.labels[last.id];
    go(order.findIndex(({ id }) => id === last.id));
    return say(`${state.at + 1}: ${words().undone}`);
  };

  const nextLeft = () => {
    const places = order.map((_, n) => (state.at + 1 + n) % order.length);
    const at = places.find((n) => !state.labels[order[n].id]);
    if (at === undefined) say(words().done); else go(at);
  };

  const begin = (coder) => {
    past.length = 0;
    const kept = stored(coder);
    state = kept?.labels && kept.notes ? { ...kept, coder } : { coder, at: 0, labels: {}, notes: {} };
    order = [...rows].sort((a, b) => rank(`${coder}|${a.id}`) - rank(`${coder}|${b.id}`) || (a.id < b.id ? -1 : 1));
    if (!order[state.at]) state.at = 0;
    save();
    draw();
  };

  const download = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    unsaved = false;
  };
  const cell = (text) => `"${(/^[=+\-@\t\r\n'＝＋－＠]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const asCsv = () => [[...columns, "coder", "study"], ...order.map((it) => [
    it.id, it.question, it.answer, it.cut ? cut : "", it.language, state.labels[it.id] ?? "", state.notes[it.id] ?? "", state.coder, study])]
    .map((line) => line.map(cell).join(",")).join("\r\n");
  const asLines = () => order.map(({ id }) => `${JSON.stringify({
    study, coder: state.coder, id, label: state.labels[id] ?? "", note: state.notes[id] ?? "" })}\n`).join("");

  const take = (text) => {
    let found;
    try {
      found = text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
      const known = new Set(rows.map(({ id }) => id));
      const fits = (it) => it.study === study && known.has(it.id) && ["", ...Object.values(KEYS)].includes(it.label) && typeof it.note === "string";
      if (!found.length || !found.every(fits)) throw new TypeError(words().foreign);
    } catch {
      return trouble(words().foreign);
    }
    if (found.some((it) => it.coder !== state.coder)) return trouble(words().whose);
    const news = found.filter((it) => it.label && !state.labels[it.id]);
    const kept = found.filter((it) => it.label && state.labels[it.id] && state.labels[it.id] !== it.label);
    news.forEach((it) => { state.labels[it.id] = it.label; });
    found.forEach((it) => { if (it.note && !state.notes[it.id]) state.notes[it.id] = it.note; });
    trouble("");
    save();
    draw();
    return say(words().taken(news.length, kept.length));
  };

  for (const { key, name: word } of labels) {
    const press = Object.assign(part("button", ""), { type: "button", value: word });
    press.setAttribute("aria-keyshortcuts", key);
    press.append(document.createTextNode(""), part("kbd", key));
    press.addEventListener("click", () => label(word));
    $("labels").append(press);
  }
  $("labels").classList.toggle("many", labels.length > 3);
  $("start").addEventListener("submit", (event) => { event.preventDefault(); begin($("coder").value); $("a").focus(); });
  $("language").addEventListener("click", () => { language = language === "zh" ? "en" : "zh"; draw(); });
  $("back").addEventListener("click", () => go(state.at - 1));
  $("forth").addEventListener("click", () => go(state.at + 1));
  $("undo").addEventListener("click", undo);
  $("left").addEventListener("click", nextLeft);
  $("who").addEventListener("click", () => {
    if (unsaved && !confirm(words().leave)) return;
    unsaved = false;
    state = { coder: "", at: 0, labels: {}, notes: {} };
    draw();
    $("coder").focus();
  });
  $("csv").addEventListener("click", () => download(`${state.coder}.csv`, "text/csv", `\ufeff${asCsv()}\r\n`));
  $("jsonl").addEventListener("click", () => download(`${state.coder}.jsonl`, "application/jsonl", asLines()));
  $("file").addEventListener("change", async () => { take(await $("file").files[0].text()); $("file").value = ""; });
  $("note").addEventListener("input", () => {
    if ($("note").value) state.notes[row().id] = $("note").value; else delete state.notes[row().id];
    save();
  });
  addEventListener("keydown", (event) => {
    if (event.target.id === "note" && event.key === "Escape") return $("a").focus();
    const typing = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
    if (!state.coder || typing || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return undefined;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const act = KEYS[key] ? () => label(KEYS[key])
      : { ArrowLeft: () => go(state.at - 1), ArrowRight: () => go(state.at + 1), z: undo, n: () => $("note").focus() }[key];
    if (!act || event.repeat) return undefined;
    event.preventDefault();
    return act();
  });
  addEventListener("storage", (event) => {
    if (!state.coder || event.key !== `${root}:${state.coder}` || !event.newValue) return;
    state = { ...stored(state.coder), at: state.at };
    draw();
    say(words().elsewhere);
  });
  addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });

  let last = null;
  try { last = localStorage.getItem(root); } catch { trouble(words().broken); }
  if (last) begin(last); else draw();
})();
