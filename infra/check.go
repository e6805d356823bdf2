package infra

import (
	"cmp"
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// refuse puts an error on a construct. Construction continues, so that all mistakes are
// reported at once.
func refuse(at constructs.IConstruct, format string, args ...any) {
	awscdk.Annotations_Of(at).AddError(jsii.String(fmt.Sprintf(format, args...)))
}

// problems are mistakes in props, found before there is a construct to put them on.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// refuse puts the mistakes on a construct.
func (p problems) refuse(at constructs.IConstruct) {
	for _, problem := range p {
		refuse(at, "%s", problem)
	}
}

// inRange sets a number's default, and replaces one that AWS refuses.
func (p *problems) inRange(name string, v *int, least, most, usual int) {
	*v = cmp.Or(*v, usual)
	if *v < least || *v > most {
		p.add("%s is %d: use %d to %d", name, *v, least, most)
		*v = usual
	}
}

// inSeconds sets a time's default, and replaces one that AWS refuses.
func (p *problems) inSeconds(name string, v *time.Duration, least, most, usual time.Duration) {
	*v = cmp.Or(*v, usual)
	if *v < least || *v > most || *v%time.Second != 0 {
		p.add("%s is %v: use whole seconds from %v to %v", name, *v, least, most)
		*v = usual
	}
}

// warn puts a warning on a construct; "idem:" and id acknowledge it.
func warn(at constructs.IConstruct, id, format string, args ...any) {
	awscdk.Annotations_Of(at).AddWarningV2(jsii.String("idem:"+id), jsii.String(fmt.Sprintf(format, args...)), nil)
}

// Problem is an error or a warning of a check, ours or another's, about a construct.
type Problem struct {
	// Path is the construct's path in the app.
	Path string
	// Message says what is wrong and what to change. A warning's ends with the id
	// that acknowledges it.
	Message string
	// Error is set if the stack must not be deployed; else it is a warning.
	Error bool
}

// String is the problem in one line.
func (p Problem) String() string {
	kind := "warning"
	if p.Error {
		kind = "error"
	}
	return fmt.Sprintf("%s at %s: %s", kind, p.Path, p.Message)
}

// Problems lists the errors and warnings below a construct, usually the app, as the CDK
// command line prints them. It is for tests, and for programs that call Synth themselves.
// Call it after Synth, which runs some of the checks.
func Problems(root constructs.IConstruct) []Problem {
	var all []Problem
	for _, c := range *root.Node().FindAll(constructs.ConstructOrder_PREORDER) {
		for _, m := range *c.Node().Metadata() {
			isError := *m.Type == "aws:cdk:error"
			if isError || *m.Type == "aws:cdk:warning" {
				all = append(all, Problem{Path: *c.Node().Path(), Message: fmt.Sprint(m.Data), Error: isError})
			}
		}
	}
	return all
}

// valueOf is a copy of the props to set defaults in; nil means the zero value.
func valueOf[T any](props *T) T { return *cmp.Or(props, new(T)) }
