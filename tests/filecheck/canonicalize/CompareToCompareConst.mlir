// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Compare with a weight of one value becomes a CompareConst; inversed says that the weight was on the left.
// WEIGHT half = 0.5

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %half = "top.Weight"() : () -> tensor<1x1x1xf32> loc("half")
    %y = "top.Compare"(%half, %x) {mode = "Less"} : (tensor<1x1x1xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.CompareConst"(%x) {mode = "Less", const_val = 5.000000e-01 : f64, inversed = true}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
