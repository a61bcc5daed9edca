// Answers of the server that are asked for again and again, while somebody looks.
import { useEffect, useReducer, useRef } from '../vendor/preact.js';

export function usePolled(ask, milliseconds, inputs = []) {
  const [, changed] = useReducer((number) => number + 1, 0);
  const state = useRef({ found: null, problem: '', again: () => {} });
  useEffect(() => {
    let timer = 0;
    let isOver = false;
    const look = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          state.current = { found: await ask(state.current.found), problem: '', again: look };
        } catch (error) {
          state.current = { found: state.current.found, problem: error.message, status: error.status, again: look };
        }
      }
      if (isOver) return;
      changed();
      // Not sooner after a slow answer than after a quick one.
      timer = setTimeout(look, milliseconds);
    };
    look();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, inputs);
  return state.current;
}
