// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A factor within 2e-5 of 1 has no effect; one a little farther has.
// WEIGHT near = 1.00001
// WEIGHT far = 1.00003

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %near = "top.Weight"() : () -> tensor<1x1x1xf32> loc("near")
    %a = "top.Mul"(%x, %near) : (tensor<2x4x6xf32>, tensor<1x1x1xf32>) -> tensor<2x4x6xf32> loc("a")
    %s = "top.Sigmoid"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("s")
    %far = "top.Weight"() : () -> tensor<1x1x1xf32> loc("far")
    %y = "top.Mul"(%s, %far) : (tensor<2x4x6xf32>, tensor<1x1x1xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %s = "top.Sigmoid"(%x){{.*}} -> tensor<2x4x6xf32> loc("s")
// CHECK-NEXT: %y = "top.MulConst"(%s) {const_val = 1.0000{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
