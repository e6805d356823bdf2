package canonical

import "slices"

// Find returns the value of a canonical text to which a valid JSON pointer leads.
func Find(document []byte, pointer string) (value []byte, found bool) {
	p, found := find(document, pointer)
	return document[p.value:p.end], found
}

// Cut takes the values to which valid JSON pointers lead out of a canonical text, in
// place. None may lie inside another one. What remains is canonical again: what follows
// an element of an array moves up.
func Cut(document []byte, pointers []string) []byte {
	places := make([]place, 0, len(pointers))
	for _, pointer := range pointers {
		if p, found := find(document, pointer); found {
			places = append(places, p)
			// From the back, so that places further in front stay true.
			for i := len(places) - 1; i > 0 && places[i].start > places[i-1].start; i-- {
				places[i], places[i-1] = places[i-1], places[i]
			}
		}
	}
	for _, p := range places {
		switch {
		case document[p.start-1] == ',':
			p.start--
		case document[p.end] == ',':
			p.end++
		}
		document = slices.Delete(document, p.start, p.end)
	}
	return document
}
