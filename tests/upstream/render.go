// Renders an init container template as the training operator does (v1.9.4,
// pkg/controller.v1/pytorch/initcontainer.go), so that Go's escaping is part of the test.
package main

import (
	"encoding/json"
	"html/template"
	"log"
	"os"
)

func main() {
	var input struct {
		Template string
		Values   struct {
			MasterAddr         string
			InitContainerImage string
			MaxTries           int
		}
	}
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		log.Fatal(err)
	}
	parsed, err := template.New("container").Parse(input.Template)
	if err != nil {
		log.Fatal(err)
	}
	if err := parsed.Execute(os.Stdout, input.Values); err != nil {
		log.Fatal(err)
	}
}
