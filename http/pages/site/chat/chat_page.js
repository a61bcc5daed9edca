// The chat: a list of conversations, one or two on the screen, and the message that is being written.
import { Act } from '../act.js';
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from '../vendor/preact.js';
import { Composer, forgetSent } from './composer.js';
import { Conversation } from './conversation.js';
import { exportJson, exportMarkdown } from './export.js';
import { textOf } from './items.js';
import { chats, firstOf, listModels, modelLabel, planLine, sees } from './models.js';
import { OptionsPanel } from './options_panel.js';
import { Pane } from './pane.js';
import { findRecords } from './records.js';
import { Sidebar } from './sidebar.js';

// Each look at the list is a row of the audit; while a model loads, its state changes.
const LOOK_AGAIN_MS = 60_000;
const LOADING_MS = 1_500;
const LOST_MS = 5_000;
const READ_ALOUD = 400; // characters

// What a visit of the control room leaves where it was, answers under way included.
let onScreen = [new Conversation()];

export function ChatPage({ path }) {
  const [records, setRecords] = useState(null);
  const [problem, setProblem] = useState('');
  useEffect(() => { findRecords().then(setRecords, (error) => setProblem(error.message)); }, []);
  if (!records) return html`<p class=${problem ? 'hint problem' : 'hint'}>${problem || 'Loading …'}</p>`;
  return html`<${Chat} records=${records} path=${path} />`;
}

function useModels(isAwaited) {
  const [found, setFound] = useState(null);
  const models = found ?? [];
  const [problem, setProblem] = useState('');
  const look = () => listModels().then((listed) => {
    setFound(listed);
    setProblem('');
  }, (error) => setProblem(error.message));
  const isLoading = models.some(({ id, state }) => state === 'loading' || (state !== 'ready' && isAwaited(id)));
  const pause = problem ? LOST_MS : isLoading ? LOADING_MS : LOOK_AGAIN_MS;
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) look(); }, pause);
    return () => clearInterval(timer);
  }, [pause]);
  useEffect(() => { look(); }, []);
  return [models, problem, look, found !== null];
}

function Chat({ records, path }) {
  const [version, changed] = useReducer((number) => number + 1, 0);
  const [saved, wasSaved] = useReducer((number) => number + 1, 0);
  const [talks, setTalks] = useState(onScreen);
  onScreen = talks;
  const [panel, setPanel] = useState('');
  const [notice, setNotice] = useState('');
  const [keeping, setKeeping] = useState(0); // saves under way
  const opening = useRef(null); // the place that was asked for last, and is not on the screen yet
  const [models, modelProblem, lookAgain, isListed] = useModels((id) => talks.some((talk) => talk.isAnswering && talk.model === id));
  const [main, rival] = talks;

  // `work` tells whether the list of conversations is another then.
  const keep = async (work) => {
    setKeeping((number) => number + 1);
    try {
      if (await work()) wasSaved();
    } catch (error) {
      setNotice(`Not kept: ${error.message}`);
    }
    setKeeping((number) => number - 1);
    changed();
  };
  for (const talk of talks) {
    talk.changed = changed;
    // Before the question is asked, and after its answer; one after the other, for each locks the conversation.
    talk.keep = () => {
      talk.kept = talk.kept.then(() => keep(async () => {
        const isNew = !talk.id;
        await records.save(talk);
        if (talk === onScreen[0]) forgetSent(talk);
        if (rival && onScreen.includes(rival)) await link(records, main, rival);
        return isNew;
      }));
      return talk.kept;
    };
    talk.turnEnded = () => {
      lookAgain();
      return talk.keep();
    };
  }
  const able = models.filter(chats);
  const nobody = isListed && !able.length && !main.model ? 'No model here writes.' : '';
  for (const talk of talks) if (!talk.model && able.length) talk.model = able[0].id;
  const model = models.find((each) => each.id === main.model);

  const show = (...wanted) => {
    opening.current = null;
    for (const each of talks) if (!wanted.includes(each)) records.leave(each);
    setTalks(wanted);
    setNotice('');
    setPanel((before) => (before === 'list' ? '' : before));
  };
  useEffect(() => {
    const [id] = path;
    if (!id || id === main.id) return undefined;
    opening.current = path;
    records.openPair(id).then((found) => {
      if (opening.current === path) show(...found);
      else for (const each of found) records.leave(each);
    }, (error) => setNotice(error.message));
    return () => { opening.current = null; };
  }, [path]);

  // As soon as it has an id, so that a reload finds it.
  useLayoutEffect(() => {
    if (main.id && /^(#chat.*)?$/.test(location.hash)) history.replaceState(null, '', `#chat/${main.id}`);
  }, [main.id]);

  const began = () => {
    history.replaceState(null, '', '#chat');
    show(new Conversation(main.model, main.options));
    document.getElementById('message')?.focus();
  };
  const acts = useMemo(() => actsOf(main, show), [main]);
  const rivalActs = useMemo(() => rival && actsOf(rival, show), [rival]);
  const compare = () => {
    if (!rival) return setTalks([main, rivalOf(main, able)]);
    setTalks([main]);
    return keep(() => unlink(records, main, rival).then(() => true));
  };
  const answering = talks.some((talk) => talk.isAnswering);
  const { settingsProblem } = main;
  const send = (parts) => {
    if (rival) rival.options = main.options;
    setNotice('');
    for (const talk of talks) talk.send(parts);
  };
  const voice = firstOf(models, 'speech');
  return html`<div class=${panel === 'list' ? 'chat listing' : 'chat'}>
    <${Sidebar} records=${records} version=${saved} current=${main.id} keeping=${keeping > 0} began=${began} open=${(wanted) => wanted === main.id && setPanel('')} />
    <section class="talk" aria-label="Conversation">
      <h1 class="seen-by-readers">Chat</h1>
      <div class="head">
        <button type="button" class="only-narrow" aria-pressed=${panel === 'list' ? 'true' : 'false'} onClick=${() => setPanel(panel === 'list' ? '' : 'list')}>Chats</button>
        <${Picker} label="Model" models=${able} nobody=${nobody} talk=${main} changed=${changed} look=${lookAgain} />
        ${rival && html`<${Picker} label="Second model" models=${able} nobody=${nobody} talk=${rival} changed=${changed} look=${lookAgain} />`}
        <button type="button" id="compare" aria-pressed=${rival ? 'true' : 'false'} onClick=${compare}>Compare</button>
        <button type="button" id="settings" aria-expanded=${panel === 'options' ? 'true' : 'false'} onClick=${() => setPanel(panel === 'options' ? '' : 'options')}>Settings</button>
        <${Keeping} talks=${talks} records=${records} kept=${wasSaved} gone=${began} fail=${setNotice} />
        <${Plan} model=${model} answering=${answering} problem=${modelProblem || notice} />
      </div>
      ${panel === 'options' && html`<${OptionsPanel} conversation=${main} model=${model} changed=${changed} />`}
      <div class=${rival ? 'panes two' : 'panes'}>
        <${Pane} conversation=${main} acts=${acts} voice=${voice} label="Messages" version=${version} />
        ${rival && html`<${Pane} conversation=${rival} acts=${rivalActs} voice=${voice} label="Messages of the second model" version=${version} />`}
      </div>
      <${Ended} talk=${main} answering=${answering} />
      <${Composer} talk=${main} answering=${answering} sees=${sees(model)} ears=${firstOf(models, 'transcription')} send=${send}
        problem=${nobody || (settingsProblem && `Settings: ${settingsProblem}`)} stop=${() => talks.forEach((talk) => talk.stop())} />
    </section></div>`;
}

const rivalOf = (main, able) => {
  const other = able.find((each) => each.id !== main.model) || able[0];
  const rival = main.branch(main.entries.length);
  return Object.assign(rival, { model: other?.id || '', title: main.title, isSecond: true });
};

// Two conversations that are found again together, once both are kept.
async function link(records, main, rival) {
  if (!main.id || !rival.id || main.partner === rival.id) return;
  main.partner = rival.id;
  rival.partner = main.id;
  await records.describe(main);
  await records.describe(rival);
}

// Then each is a conversation of its own.
async function unlink(records, main, rival) {
  rival.stop();
  Object.assign(rival, { isSecond: false, partner: null });
  main.partner = null;
  for (const talk of [main, rival]) if (talk.id) await records.describe(talk);
}

// The pressed button goes away with what it stood under: the keyboard goes on from the messages.
const keepFocus = () => setTimeout(() => {
  if (document.activeElement === document.body) document.querySelector('.pane')?.focus({ preventScroll: true });
}, 100);

const actsOf = (talk, show) => ({
  // What was said after an earlier answer is not lost: the new answer begins a branch.
  retry: (index) => {
    keepFocus();
    if (index === talk.entries.length - 1) return talk.retry(index);
    const branch = talk.branch(talk.beginOf(index));
    show(branch);
    return setTimeout(() => branch.answer());
  },
  sendResults: (results) => {
    keepFocus();
    return talk.sendResults(results);
  },
  sendApprovals: (answers) => {
    keepFocus();
    return talk.sendApprovals(answers);
  },
  branch: (index) => {
    keepFocus();
    show(talk.branch(index));
  },
  edit: (index, parts) => {
    keepFocus();
    const branch = talk.branch(index);
    show(branch);
    // After the page has taken it over, so that it is followed and kept.
    setTimeout(() => branch.send(parts));
  },
});

function Picker({ label, models, nobody, talk, changed, look }) {
  const choose = (event) => {
    talk.model = event.target.value;
    changed();
  };
  return html`<label><span class="seen-by-readers">${label}</span><select value=${talk.model} onFocus=${look} onChange=${choose} disabled=${talk.isAnswering}>
    ${!models.some(({ id }) => id === talk.model) && html`<option value=${talk.model}>${talk.model || nobody || 'Loading …'}</option>`}
    ${models.map((model) => html`<option key=${model.id} value=${model.id} disabled=${Boolean(model.problem)}>${modelLabel(model)}</option>`)}
  </select></label>`;
}

function Plan({ model, answering, problem }) {
  const [line, setLine] = useState('');
  useEffect(() => {
    let isCurrent = true;
    planLine(model).then((found) => { if (isCurrent) setLine(found); });
    return () => { isCurrent = false; };
  }, [model?.id, model?.state]);
  return html`<p class=${problem ? 'problem' : 'faint'} role="status">${problem || (answering ? '' : line)}</p>`;
}

function Keeping({ talks, records, kept, gone, fail }) {
  const [talk] = talks;
  const dialog = useRef(null);
  const [title, setTitle] = useState('');
  if (!talk.entries.length) return null;
  const attempt = async (act) => {
    try {
      await act();
      dialog.current?.close();
      kept();
    } catch (error) {
      fail(error.message);
    }
  };
  const rename = () => attempt(async () => {
    await records.rename(talk.id, title);
    talk.title = title;
  });
  const remove = () => attempt(async () => {
    for (const each of talks) if (each.id) await records.remove(each.id);
    gone();
  });
  const open = () => {
    setTitle(talk.title);
    dialog.current.showModal();
  };
  return html`<button type="button" id="keep" onClick=${open}>Conversation</button>
    <dialog ref=${dialog} aria-label="This conversation">
      <label class="field"><span>Name</span><input value=${title} maxlength="200" onInput=${(event) => setTitle(event.target.value)} /></label>
      <div class="row">
        <button type="button" class="main" disabled=${!talk.id || !title.trim()} onClick=${rename}>Rename</button>
        <button type="button" onClick=${() => exportMarkdown(talks)}>Save as Markdown</button>
        <button type="button" onClick=${() => exportJson(talks)}>Save as JSON</button>
        <${Act} label="Delete" twice disabled=${talk.isAnswering} run=${remove} />
        <button type="button" onClick=${() => dialog.current.close()}>Close</button>
      </div></dialog>`;
}

// For those who hear the page: the answer's beginning when it has ended, not every token.
function Ended({ talk, answering }) {
  const [line, setLine] = useState('');
  const before = useRef(false);
  useEffect(() => {
    if (before.current !== answering) setLine(answering ? 'The answer begins.' : endedLine(talk));
    before.current = answering;
  }, [answering]);
  return html`<p class="seen-by-readers" role="status">${line}</p>`;
}

function endedLine(talk) {
  const entry = talk.entries.at(-1);
  if (entry?.kind !== 'assistant' || entry.state !== 'done') return 'The answer has ended.';
  if (entry.parts.some(({ type }) => type === 'mcp_approval_request')) return 'The answer waits for your approval of a call.';
  const text = textOf(entry);
  return `The answer has ended: ${text.length > READ_ALOUD ? `${text.slice(0, READ_ALOUD)} …` : text}`;
}
