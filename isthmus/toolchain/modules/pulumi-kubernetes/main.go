// The Kubernetes provider of Pulumi as a program of our own. The provider's own main embeds two generated files that its
// Go module does not carry, so this one hands over the least that the engine asks for: a schema with a name and a version.
package main

import "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"

// version is set by the linker: the version of the Python SDK that asks for this plugin.
var version = "0.0.0"

func main() {
	schema := []byte(`{"name": "kubernetes", "version": "` + version + `", "resources": {}, "functions": {}}`)
	provider.Serve("kubernetes", version, schema, []byte("{}"))
}
