// Orders what the site's search finds: Sphinx counts a word in any page alike, so that evidence would come first.
// A result leads to the heading that has most of the words that were asked for, and is the better the more it has.
// Sphinx finds only pages with all words. Here half of them are enough, or the most that any page has.
var Scorer = {
  score: (result) => {
    const [page, title] = result;
    const asked = Scorer.words(new URLSearchParams(window.location.search).get("q") || "");
    const index = Search._index;
    const number = index.docnames.indexOf(page);
    let best = 0;
    for (const [heading, places] of Object.entries(index.alltitles)) {
      const place = places.find(([file]) => file === number);
      const said = place ? Scorer.words(heading) : new Set();
      const both = [...asked].filter((word) => said.has(word)).length;
      const worth = both && (20 * both) / asked.size + (5 * both) / said.size;
      if (worth > best) {
        best = worth;
        if (index.titles[number] !== heading) {
          result[1] = `${index.titles[number]} > ${heading}`;
          result[2] = `#${place[1]}`;
        }
      }
    }
    const inQuestions = page === "docs/questions" ? 4 : 0;
    const forDevelopers = /^docs\/(evidence|contributing)\/|^CHANGELOG/.test(page) ? 15 : 0;
    return best + inQuestions - forDevelopers - 20 * (Scorer.lacking.get(page) || 0);
  },

  lacking: new Map(), // the share of the words that a page does not have

  pagesWith: (find, words, excluded) => {
    const pages = new Map();
    for (const word of words) {
      for (const result of find(new Set([word]), excluded)) {
        const page = pages.get(result[0]) || { result, words: 0 };
        pages.set(result[0], { result: page.result, words: page.words + 1 });
      }
    }
    const most = Math.max(0, ...[...pages.values()].map((page) => page.words));
    const enough = [...pages.values()].filter((page) => page.words >= Math.min(most, words.size / 2));
    for (const page of enough) Scorer.lacking.set(page.result[0], 1 - page.words / words.size);
    return enough.map((page) => page.result);
  },

  words: (text) => {
    const stemmer = new Stemmer();
    const common = new Set([...stopwords, "bftrainer"]); // most titles of commands have it
    const words = splitQuery(text.toLowerCase()).filter((word) => !common.has(word));
    return new Set(words.map((word) => stemmer.stemWord(word)));
  },

  // Sphinx's own figures
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

const pagesWithAll = Search.performTermsSearch;
Search.performTermsSearch = (words, excluded) => Scorer.pagesWith(pagesWithAll, words, excluded);
