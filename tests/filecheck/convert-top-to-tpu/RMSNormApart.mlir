// RUN: tpusim opt -p 'convert-top-to-tpu{chip=bm1684 mode=F32}' %s | filecheck %s
//
// An RMSNorm becomes its parts.
// WEIGHT row = 1 2 3 4 5 6

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %row = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
    %y = "top.RMSNorm"(%x, %row) {eps = 9.9999999747524271e-07 : f64} : (tensor<2x4x6xf32>, tensor<1x1x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Mul"(%1, %1) {{.*}} -> tensor<2x4x6xf32> loc("y_squares")
// CHECK-NEXT: %3 = "tpu.Reduce"(%2) {axes = [2 : i64], keepdims = true, mode = "ReduceMean"}{{.*}} -> tensor<2x4x1xf32> loc("y_mean")
// CHECK-NEXT: %4 = "tpu.AddConst"(%3) {const_val = 9.9999999747524271e-07 : f64{{.*}} -> tensor<2x4x1xf32> loc("y_shifted")
// CHECK-NEXT: %5 = "tpu.Active"(%4) {mode = "SQRT", coeffs = []}{{.*}} -> tensor<2x4x1xf32> loc("y_root")
// CHECK-NEXT: %6 = "tpu.Reciprocal"(%5) {const_val = 1.000000e+00 : f64}{{.*}} -> tensor<2x4x1xf32> loc("y_reciprocal")
// CHECK-NEXT: %7 = "tpu.Mul"(%1, %6) {{.*}} -> tensor<2x4x6xf32> loc("y_normalised")
// CHECK-NEXT: %8 = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
// CHECK-NEXT: %9 = "tpu.Mul"(%7, %8) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %9 : tensor<2x4x6xf32>
