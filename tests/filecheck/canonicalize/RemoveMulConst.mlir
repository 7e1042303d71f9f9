// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A MulConst by 1 is removed.
// WEIGHT one = 1

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %one = "top.Weight"() : () -> tensor<1x1x1xf32> loc("one")
    %a = "top.Mul"(%x, %one) : (tensor<2x4x6xf32>, tensor<1x1x1xf32>) -> tensor<2x4x6xf32> loc("a")
    %y = "top.Sin"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Sin"(%x) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
