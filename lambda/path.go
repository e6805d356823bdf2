package idemlambda

import "strings"

// withoutStage removes the stage from the path. Only the API's own endpoint has it there;
// a custom domain does not.
func withoutStage(path, stage, domain, api string) string {
	if stage == "" || stage == "$default" || api == "" || !strings.HasPrefix(domain, api+".") {
		return path
	}
	rest, ok := strings.CutPrefix(path, "/"+stage)
	switch {
	case ok && rest == "":
		return "/"
	case ok && rest[0] == '/':
		return rest
	}
	return path
}
