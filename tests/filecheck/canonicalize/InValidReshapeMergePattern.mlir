// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Reshape to a scalar and the Unsqueeze that undoes it are removed; names stay. Unsqueeze and Reshape stay.

func.func @main(%in: tensor<1xf32>) -> (tensor<1xf32>, tensor<1xf32>) {
  %x = "top.Input"(%in) : (tensor<1xf32>) -> tensor<1xf32> loc("x")
  %r = "top.Relu"(%x) {relu_limit = -1.0 : f64} : (tensor<1xf32>) -> tensor<1xf32> loc("r")
  %a = "top.Reshape"(%r) {shape = []} : (tensor<1xf32>) -> tensor<f32> loc("a")
  %b0 = "top.Unsqueeze"(%a) {axes = [0]} : (tensor<f32>) -> tensor<1xf32> loc("b0")
  %y = "top.Sin"(%b0) : (tensor<1xf32>) -> tensor<1xf32> loc("y")
  %c = "top.Unsqueeze"(%r) {axes = [0]} : (tensor<1xf32>) -> tensor<1x1xf32> loc("c")
  %d = "top.Reshape"(%c) {shape = [1]} : (tensor<1x1xf32>) -> tensor<1xf32> loc("d")
  %z = "top.Sin"(%d) : (tensor<1xf32>) -> tensor<1xf32> loc("z")
  func.return %y, %z : tensor<1xf32>, tensor<1xf32>
}

// CHECK:      %r = "top.Relu"(%x) {{.*}} loc("r")
// CHECK-NEXT: %y = "top.Sin"(%r) {{.*}} loc("y")
// CHECK-NEXT: %c = "top.Unsqueeze"(%r) {{.*}} loc("c")
// CHECK-NEXT: %d = "top.Reshape"(%c) {{.*}} loc("d")
// CHECK-NEXT: %z = "top.Sin"(%d) {{.*}} loc("z")
