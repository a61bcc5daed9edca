// Figures as people read them.

export const bytes = (count) => {
  if (count === null || count === undefined) return '';
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${count < 10 && unit ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
};

export const seconds = (value) => {
  if (value < 10) return `${value.toFixed(value < 1 ? 2 : 1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} days`;
};

export const count = (number, word) => `${number.toLocaleString('en')} ${word}${number === 1 ? '' : 's'}`;

// The time; the day too, if it is another.
export const clock = (unix) => {
  const moment = new Date(unix * 1000);
  const isToday = moment.toDateString() === new Date().toDateString();
  return isToday ? moment.toLocaleTimeString() : moment.toLocaleString();
};

const LONGEST = 100_000;
const tooMuch = (text) => (text.length > LONGEST ? `\n… and ${count(text.length - LONGEST, 'character')} more` : '');

// A text of others as it is: letters that cannot be seen, or turn others, by their numbers.
export const plain = (text) => String(text).slice(0, LONGEST).replace(
  /[^\P{C}\n\t\u200c\u200d]/gu, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`,
) + tooMuch(String(text));

export const percent = (fraction) => `${Math.round(100 * fraction)} %`;
