package provider

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// executable is the name by which Terraform starts the AWS provider.
const executable = "terraform-provider-aws"

// TestMain serves the stand-in if Terraform started the test's binary.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != executable {
		m.Run()
		return
	}
	if err := tf5server.Serve("registry.terraform.io/hashicorp/aws", func() tfprotov5.ProviderServer {
		return standIn{}
	}); err != nil {
		log.Fatal(err)
	}
}

// standIn is a provider whose schema is the extract. It has the methods that Terraform calls to validate
// resources. A mock of a provider needs no others.
type standIn struct{ tfprotov5.ProviderServer }

func (standIn) GetProviderSchema(
	context.Context, *tfprotov5.GetProviderSchemaRequest,
) (*tfprotov5.GetProviderSchemaResponse, error) {
	schemas := map[string]*tfprotov5.Schema{}
	for kind, b := range known() {
		schemas[kind] = &tfprotov5.Schema{Block: b.schema()}
	}
	own := &tfprotov5.Schema{Block: &tfprotov5.SchemaBlock{}}
	return &tfprotov5.GetProviderSchemaResponse{Provider: own, ResourceSchemas: schemas}, nil
}

func (standIn) ValidateResourceTypeConfig(
	context.Context, *tfprotov5.ValidateResourceTypeConfigRequest,
) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

var types = map[string]tftypes.Type{
	"string": tftypes.String, "number": tftypes.Number, "boolean": tftypes.Bool,
	// The extract has no types of elements. Terraform converts numbers and booleans to strings.
	"list": tftypes.List{ElementType: tftypes.String}, "map": tftypes.Map{ElementType: tftypes.String},
}

func (b Block) schema() *tfprotov5.SchemaBlock {
	var s tfprotov5.SchemaBlock
	for name, a := range b.Attributes {
		s.Attributes = append(s.Attributes, &tfprotov5.SchemaAttribute{
			Name: name, Type: types[a.Type], Required: a.Required, Optional: !a.Required})
	}
	for _, name := range b.Exports {
		if _, settable := b.Attributes[name]; !settable {
			s.Attributes = append(s.Attributes, &tfprotov5.SchemaAttribute{Name: name, Type: tftypes.String, Computed: true})
		}
	}
	for name, inner := range b.Blocks {
		nested := tfprotov5.SchemaNestedBlock{
			TypeName: name, Block: inner.schema(), Nesting: tfprotov5.SchemaNestedBlockNestingModeList}
		if inner.Single {
			nested.MaxItems = 1
		}
		if inner.Required {
			nested.MinItems = 1
		}
		s.BlockTypes = append(s.BlockTypes, &nested)
	}
	return &s
}
