// Package pathtemplate reads the path templates of routes, as API Gateway and
// [net/http.ServeMux] write them, and holds paths to them. "{name}" stands for one
// segment that is not empty, "{name+}" and "{name...}" for the rest of a path, "{$}" for
// its end after a slash. Everything else stands for itself.
package pathtemplate

import "strings"

// Kind is what a segment of a template stands for. Where a path matches several
// templates, the kinds are in the order in which services prefer them.
type Kind byte

const (
	Literal   Kind = '0' + iota
	Parameter      // one segment
	Rest           // all that is left of the path, one segment at least
)

// Segment is one of a template.
type Segment struct {
	Kind Kind
	// Text of a literal, or the parameter's name.
	Text string
}

func segmentOf(text string) Segment {
	name, open := strings.CutPrefix(text, "{")
	name, shut := strings.CutSuffix(name, "}")
	switch {
	case !open || !shut:
		return Segment{Literal, text}
	case name == "$":
		return Segment{Literal, ""}
	}
	if first, ok := strings.CutSuffix(name, "+"); ok {
		return Segment{Rest, first}
	}
	if first, ok := strings.CutSuffix(name, "..."); ok {
		return Segment{Rest, first}
	}
	return Segment{Parameter, name}
}

// Match reports whether a path matches a template. fits judges each segment with the part
// of the path in its place; parts of parameters are not empty. The rank sorts before that
// of another template which the path matches as well, if this one is literal for longer.
func Match(path, template string, fits func(s Segment, part string) bool) (rank string, ok bool) {
	var kinds strings.Builder
	for more := true; more; {
		var text, part string
		text, template, more = strings.Cut(template, "/")
		s := segmentOf(text)
		kinds.WriteByte(byte(s.Kind))
		rest := path
		var left bool
		part, path, left = strings.Cut(path, "/")
		switch {
		case s.Kind != Literal && part == "":
			return "", false
		case s.Kind == Rest:
			return kinds.String(), fits(s, rest)
		case !fits(s, part), left != more:
			return "", false
		}
	}
	return kinds.String(), true
}

// Valid reports whether every parameter of a template is a whole segment in braces with a
// name: what other routers write as ":id" would match nothing.
func Valid(template string) bool {
	for segment := range strings.SplitSeq(template, "/") {
		name, isParameter := strings.CutPrefix(segment, "{")
		if isParameter {
			if name, isParameter = strings.CutSuffix(name, "}"); !isParameter || name == "" {
				return false
			}
		}
		if strings.ContainsAny(name, "{}") || strings.HasPrefix(name, ":") {
			return false
		}
	}
	return true
}
