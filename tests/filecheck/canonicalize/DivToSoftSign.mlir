// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Div of x by 1 + |x| becomes a Softsign.
// WEIGHT one = 1

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %a = "top.Abs"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
    %one = "top.Weight"() : () -> tensor<f32> loc("one")
    %b0 = "top.Add"(%a, %one) : (tensor<2x4x6xf32>, tensor<f32>) -> tensor<2x4x6xf32> loc("b0")
    %y = "top.Div"(%x, %b0) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Softsign"(%x) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
