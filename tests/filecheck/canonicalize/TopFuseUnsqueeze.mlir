// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Squeeze and the Unsqueeze that undoes it are removed if nothing else reads the Squeeze; the op before takes the name.

func.func @main(%in: tensor<1x4x6xf32>) -> (tensor<1x4x6xf32>, tensor<1x4x6xf32>, tensor<4x6xf32>) {
  %x = "top.Input"(%in) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("x")
  %r = "top.Abs"(%x) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("r")
  %a = "top.Squeeze"(%r) {axes = [0]} : (tensor<1x4x6xf32>) -> tensor<4x6xf32> loc("a")
  %b0 = "top.Unsqueeze"(%a) {axes = [0]} : (tensor<4x6xf32>) -> tensor<1x4x6xf32> loc("b0")
  %y = "top.Sin"(%b0) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("y")
  %c = "top.Squeeze"(%x) {axes = [0]} : (tensor<1x4x6xf32>) -> tensor<4x6xf32> loc("c")
  %d = "top.Unsqueeze"(%c) {axes = [0]} : (tensor<4x6xf32>) -> tensor<1x4x6xf32> loc("d")
  %z = "top.Sin"(%d) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("z")
  %e = "top.Cos"(%c) : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("e")
  func.return %y, %z, %e : tensor<1x4x6xf32>, tensor<1x4x6xf32>, tensor<4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("x")
// CHECK-NEXT: %[[R:\w+]] = "top.Abs"(%x) {{.*}} -> tensor<1x4x6xf32> loc("b0")
// CHECK-NEXT: %y = "top.Sin"(%[[R]]) {{.*}} -> tensor<1x4x6xf32> loc("y")
// CHECK-NEXT: %c = "top.Squeeze"(%x) {{.*}} loc("c")
// CHECK-NEXT: %d = "top.Unsqueeze"(%c) {{.*}} loc("d")
// CHECK-NEXT: %z = "top.Sin"(%d) {{.*}} loc("z")
